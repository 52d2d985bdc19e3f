"""The CLIP family: what merging and evaluation rely on; random changes and crops of images."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from open_clip import image_transform
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.functional import resized_crop

from reproduction.models.clip import FAMILY
from reproduction.models.clip import network as clip
from reproduction.models.clip.onednn import use_onednn
from reproduction.models.families import load
from reproduction.models.vision.augmentation import augment, crop_and_resize, random_crops
from small_clip import SPEC, save_random
from tiny_worlds.drawn import TASKS, examples


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    save_random(path)
    return path


def head_of(model: clip.ClipModel) -> torch.Tensor:
    return torch.from_numpy(model.head(TASKS["cars"])["head"])


def test_head_is_the_plain_statement(weights: Path) -> None:
    """Zero-shot accuracy would be wrong, and so would every model trained against the head."""
    model, task = load(SPEC, weights), TASKS["cars"]
    tensors = load_file(weights)
    vocabulary = tensors.pop(clip.VOCABULARY).tolist()
    network = clip.build(SPEC["architecture"], len(vocabulary)).eval()
    network.load_state_dict(tensors)
    tokenize = clip.Tokenizer(vocabulary, 16)
    rows = []
    for name in task.classes:
        embedded = network.encode_text(tokenize([template.format(name) for template in task.templates]))
        mean = functional.normalize(embedded, dim=-1).mean(0)
        rows.append(mean / mean.norm() * network.logit_scale.exp())
    torch.testing.assert_close(torch.from_numpy(model.head(task)["head"]), torch.stack(rows).detach())


PREPROCESS = {"size": 32, "mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}


def test_a_file_of_open_clips_becomes_the_same_model(tmp_path: Path) -> None:
    """Weights in open_clip's format would give different features here than in open_clip."""
    torch.manual_seed(1)
    network = clip.build(SPEC["architecture"]).eval()
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    tensors = FAMILY.convert_pretrained(SPEC, tmp_path / "weights.pt")
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}
    save_file({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, tmp_path / "ours.safetensors")
    model = load({**SPEC, "preprocess": PREPROCESS}, tmp_path / "ours.safetensors")
    images = examples("cars", "test", 4, seed=0)[0]
    transform = image_transform(32, is_train=False)
    theirs = torch.stack([transform(Image.fromarray(image)) for image in images])
    with torch.no_grad():
        expected = network.encode_image(theirs, normalize=True)
        found = model.logits(model.pixels(images), torch.eye(16))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_images_are_resized_as_by_open_clip(tmp_path: Path) -> None:
    """Small images would be resized differently from the paper's before they reach the network."""
    preprocess = clip.Preprocess(224, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    transform = image_transform(224, is_train=False, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    for side in (28, 64, 96, 224):
        image = np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)
        ours, theirs = preprocess(torch.from_numpy(image[None]))[0], transform(Image.fromarray(image))
        assert (ours - theirs).abs().mean() < 1 / 255, side
        torch.testing.assert_close(255 * ours, (255 * ours).round().clamp(0, 255), rtol=0, atol=1e-3)


def test_mixed_precision_stays_near(weights: Path) -> None:
    """Using bfloat16 would change the weights, or would have no effect."""
    strict, mixed = load(SPEC, weights), load(SPEC, weights, "bfloat16")
    images, head = strict.pixels(examples("cars", "test", 8, seed=0)[0]), head_of(strict)
    with torch.no_grad():
        exact, found = strict.logits(images, head), mixed.logits(images, head)
    assert mixed.flat.dtype == found.dtype == torch.float32 and torch.equal(head_of(mixed), head)
    assert 0 < (found - exact).abs().max() < 0.05 * exact.abs().max()


def test_each_weight_set_has_its_own_scores_in_bfloat16(weights: Path) -> None:
    """All weight sets would get one set's scores, because autocast caches casts until its outermost context ends."""
    models = [load(SPEC, weights, "bfloat16") for _ in range(2)]
    head, images = head_of(models[0]), models[0].pixels(examples("cars", "test", 4, seed=0)[0])
    start = models[0].initial()
    other = start + 0.05 * torch.randn(start.shape, generator=torch.Generator().manual_seed(1))
    models[1].use(other)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):  # a caller's outer autocast context
        first, second = (model.logits(images, head) for model in models)
        models[0].use(other)
        assert torch.equal(models[0].logits(images, head), second) and not torch.equal(first, second)


@pytest.mark.parametrize("count", [1, 20])
def test_convolutions_compute_what_linear_layers_do(count: int) -> None:
    """A model would give different answers, or learn something different, on a CPU than on a GPU."""
    torch.manual_seed(0)
    own = clip.build(SPEC["architecture"]).visual
    ours = copy.deepcopy(own)
    use_onednn(ours)
    changed = {type(module).__name__ for module in ours.modules()} - {type(module).__name__ for module in own.modules()}
    assert changed == {"_Linear", "_SelfAttention"}
    assert [name for name, _ in own.named_parameters()] == [name for name, _ in ours.named_parameters()]
    images = torch.randn(count, 3, 32, 32)
    features, expected = ours(images), own(images)
    torch.testing.assert_close(features, expected)
    features.square().sum().backward()
    expected.square().sum().backward()
    for found, wanted in zip(ours.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, atol=1e-4, rtol=1e-4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_rotation_keeps_a_disc() -> None:
    """Training images would be sheared where params.yaml says that they are rotated."""
    line = torch.linspace(-1, 1, 33)
    disc = torch.exp(-8 * (line**2 + line[:, None] ** 2))
    images = torch.stack([disc, disc * (line > 0)]).repeat(4, 1, 1)[:, None].expand(8, 3, 33, 33)
    turned = augment(images, generator(), rotation=90, scale=0, shift=0, brightness=0, noise=0)
    off = (turned - images).abs().amax(dim=(1, 2, 3))
    assert off[::2].max() < 0.02 < 0.2 < off[1::2].min()


def test_crops_are_resized_as_torchvision_resizes_them() -> None:
    """Fine-tuning would see blurred or shifted images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 96, 96, 3), dtype=np.uint8)
    torch.manual_seed(0)
    crops = [RandomResizedCrop.get_params(Image.fromarray(image), (0.2, 1.0), (3 / 4, 4 / 3)) for image in images]
    for side in (32, 224):
        ours = crop_and_resize(torch.from_numpy(images), torch.tensor(crops) / 96, side)
        for image, (top, left, height, width), crop in zip(images, crops, ours, strict=True):
            theirs = resized_crop(
                Image.fromarray(image), top, left, height, width, [side, side], InterpolationMode.BICUBIC
            )
            assert np.abs(crop.numpy().astype(float) - np.asarray(theirs)).mean() < 0.01  # of 255


def test_crops_are_drawn_as_torchvision_draws_them() -> None:
    """Augmentation would be weaker or stronger than the paper's, or fine-tuning could not be repeated."""
    sizes = torch.tensor([[300, 400]]).repeat(1000, 1)
    ours = random_crops(sizes, generator())
    torch.manual_seed(0)
    canvas = Image.new("L", (400, 300))
    theirs = torch.tensor([RandomResizedCrop.get_params(canvas, (0.9, 1.0), (3 / 4, 4 / 3)) for _ in range(1000)])
    theirs = theirs / torch.tensor([300, 400, 300, 400])
    torch.testing.assert_close(ours.mean(0), theirs.mean(0), atol=4e-3, rtol=0)
    torch.testing.assert_close(ours.std(0), theirs.std(0), atol=4e-3, rtol=0)
    assert (ours[:, :2] >= 0).all() and (ours[:, :2] + ours[:, 2:] <= 1 + 1e-6).all()
    assert torch.equal(ours, random_crops(sizes, generator()))
    assert not torch.equal(ours, random_crops(sizes, generator(1)))


def test_an_image_too_long_for_a_crop_gives_its_middle() -> None:
    """Panoramas would be squeezed into a square instead of cropped."""
    boxes = random_crops(torch.tensor([[200, 500], [500, 200]]), generator())
    expected = torch.tensor([[0, 116 / 500, 1, 267 / 500], [116 / 500, 0, 267 / 500, 1]])
    torch.testing.assert_close(boxes, expected)
