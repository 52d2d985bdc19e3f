"""Statistics of a task's data (layer inputs, squared gradients), compared with plain passes of the networks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from reproduction.evaluation.data_statistics import layer_grams, squared_gradients
from reproduction.evaluation.unlabelled import UnlabelledTasks
from reproduction.models.clip import network as clip
from reproduction.models.families import load
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.tasks.texts import FREE
from small_clip import SPEC, save_random, scramble
from small_t5 import SPEC as T5_SPEC
from small_t5 import plain_network, save_small, small_examples
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.rows.parts.entropy_minimisation import entropy
from tallmasks.vectors.task_vectors import TaskVector

CLASSES = 5
ADAPTED = {**T5_SPEC, "adapter": "ia3"}


@pytest.fixture(scope="module")
def clip_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, clip.CLIP, ImageExamples]:
    """A pretrained file, open_clip's own network with its weights, and some examples."""
    path = tmp_path_factory.mktemp("clip") / "weights.safetensors"
    tensors = save_random(path)
    plain = clip.build(SPEC["architecture"], len(tensors[clip.VOCABULARY])).eval()
    plain.load_state_dict({name: tensor for name, tensor in tensors.items() if name != clip.VOCABULARY})
    scramble(plain.visual, 1)
    draw = np.random.default_rng(0)
    head = 5 * draw.normal(size=(CLASSES, 16)).astype(np.float32)
    images = draw.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    return path, plain, ImageExamples(images, draw.integers(0, CLASSES, 6), head)


def fine_tuned(path: Path, plain: clip.CLIP) -> clip.ClipModel:
    """The project's model, with the image tower's weights from the plain network."""
    model = load(SPEC, path, device="cpu")
    named = dict(plain.named_parameters())
    model.use(torch.cat([named[name].detach().reshape(-1) for name in model.trainable]))
    return model


def by_hand(visual: torch.nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """The inputs of a ViT's linear layers, [tokens, k] by the name of the weight, computed step by step."""
    patches = functional.conv2d(images, visual.conv1.weight, stride=visual.conv1.stride).flatten(2).transpose(1, 2)
    first = visual.class_embedding.expand(len(images), 1, -1)
    x = visual.ln_pre(torch.cat([first, patches], dim=1) + visual.positional_embedding)
    found = {}
    for number, block in enumerate(visual.transformer.resblocks):
        inner, heads = block.ln_1(x), block.attn.num_heads
        q, k, v = (inner @ block.attn.in_proj_weight.T + block.attn.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = ((q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + mixed @ block.attn.out_proj.weight.T + block.attn.out_proj.bias
        wide = block.mlp.c_fc.weight @ block.ln_2(x).transpose(1, 2) + block.mlp.c_fc.bias[:, None]
        bent = block.mlp.gelu(wide.transpose(1, 2))
        place = f"visual.transformer.resblocks.{number}"
        found |= {f"{place}.attn.in_proj_weight": inner, f"{place}.attn.out_proj.weight": mixed}
        found |= {f"{place}.mlp.c_fc.weight": block.ln_2(x), f"{place}.mlp.c_proj.weight": bent}
        x = x + bent @ block.mlp.c_proj.weight.T + block.mlp.c_proj.bias
    return {name: values.detach().flatten(0, 1).double() for name, values in found.items()}


def test_the_grams_of_clip_equal_a_computation_by_hand(clip_files: tuple) -> None:
    """RegMean would merge the matrices of attention with the wrong inputs."""
    path, plain, examples = clip_files
    model = fine_tuned(path, plain)
    found, again = (layer_grams(model, examples) for _ in range(2))
    assert all(np.array_equal(found[name], again[name]) for name in found), "watching changes nothing"
    expected = by_hand(plain.visual, clip.prepare(examples.images))
    assert found.keys() == expected.keys() and len(found) == 8
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], (x.T @ x / len(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_the_squared_gradients_of_clip_cover_every_class(clip_files: tuple) -> None:
    """Fisher merging would use the gradient of the label alone, or that of a batch."""
    path, plain, examples = clip_files
    model = fine_tuned(path, plain)
    found = squared_gradients(model, examples)
    plain.visual.requires_grad_(True)
    named = {name: parameter for name, parameter in plain.named_parameters() if name in model.shapes}
    expected = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
    for image in clip.prepare(examples.images).split(1):
        features = functional.normalize(plain.encode_image(image), dim=-1)
        chances = (features @ torch.from_numpy(examples.head).T).softmax(-1)[0]
        roots = chances.detach().sqrt()
        each = [torch.autograd.grad(chance.log(), named.values(), retain_graph=True) for chance in chances]
        for place, name in enumerate(named):
            expected[name] += sum(root * own[place] for root, own in zip(roots, each, strict=True)) ** 2 / 6
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.numpy(), rtol=2e-3, atol=1e-5 * float(values.max()))
        assert float(values.max()) > 0


def test_the_grams_of_t5_equal_those_of_transformers(tmp_path: Path) -> None:
    """Padding would count as data, encoder and decoder would be swapped, or RegMean would leave out layers."""
    state = save_small(tmp_path / "weights.safetensors")
    examples = small_examples(tmp_path, 5, choices=2)
    model = load(T5_SPEC, tmp_path / "weights.safetensors", device="cpu")
    found = layer_grams(model, examples)
    plain, rows = plain_network(state), {}
    names = {name: module for name, module in plain.named_modules() if isinstance(module, torch.nn.Linear)}
    for name, module in names.items():
        rows[f"{name}.weight"] = []
        module.register_forward_pre_hook(lambda _, given, n=name: rows[f"{n}.weight"].append(given[0].flatten(0, -2)))
    with torch.no_grad():
        for example in [examples[place : place + 1] for place in range(5)]:
            batch = model.prepare(example)
            plain(input_ids=batch.inputs, labels=batch.targets)
    assert found.keys() == rows.keys() & set(model.trainable) and len(found) > 30
    for name, gram in found.items():
        x = torch.cat(rows[name]).double()
        np.testing.assert_allclose(gram, (x.T @ x / len(x)).numpy(), rtol=1e-3, atol=1e-4 * abs(gram).max())


@pytest.mark.parametrize("spec", [T5_SPEC, ADAPTED])
def test_the_squared_gradients_of_t5_are_over_its_tokens(spec: dict, tmp_path: Path) -> None:
    """Fisher merging would weight a language model, or its adapter, by something other than token probabilities."""
    save_small(tmp_path / "weights.safetensors")
    examples = small_examples(tmp_path, 3, choices=2)
    model = load(spec, tmp_path / "weights.safetensors", device="cpu")
    found = squared_gradients(model, examples)
    expected = {name: torch.zeros(shape) for name, shape in model.shapes.items()}
    for place in range(3):
        batch = model.prepare(examples[place : place + 1])
        chances = model.answer_logits(batch, batch.targets)[0].softmax(-1)
        total = (chances.detach().sqrt() * chances.log()).sum()
        for name, own in zip(model.trainable, torch.autograd.grad(total, model.parameters()), strict=True):
            expected[name] += own**2 / 3
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.numpy(), rtol=5e-3, atol=1e-4 * float(values.max()))


KINDS = ["images", "choices", "free"]


def model_and_examples(kind: str, folder: Path) -> tuple[Any, Any, Any]:
    """A small network, examples, and the same with other labels."""
    weights = folder / "weights.safetensors"
    if kind == "images":
        save_random(weights)
        draw = np.random.default_rng(0)
        head = 5 * draw.normal(size=(4, 16)).astype(np.float32)
        images = draw.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
        return load(SPEC, weights, device="cpu"), ImageExamples(images, np.zeros(6, np.int64), head), \
            ImageExamples(images, np.ones(6, np.int64), head)  # fmt: skip
    save_small(weights)
    texts = small_examples(folder, 6, choices=3)
    free = np.full(6, FREE)
    first, other = (texts.right * 0, texts.right * 0 + 1) if kind == "choices" else (free, free)
    return load(T5_SPEC, weights, device="cpu"), replace(texts, right=first), replace(texts, right=other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_follows_the_loss_and_ignores_labels(kind: str, tmp_path: Path) -> None:
    """A merge would learn from the correct answers, or minimise something other than its loss."""
    model, examples, other = model_and_examples(kind, tmp_path)
    layout = Layout(model.trainable, tuple(model.shapes.values()))
    update, direction = 0.01 * np.random.default_rng(1).normal(size=(2, layout.size)).astype(np.float32)
    vector = TaskVector(direction, layout, {})
    before = model.initial().clone()
    network, relabelled = (UnlabelledTasks(model, [one], [vector]) for one in (examples, other))
    learned = network.to_device(update)
    gradient = network.gradient(learned, 0, 6, entropy)
    assert torch.equal(gradient, relabelled.gradient(learned, 0, 6, entropy))
    assert torch.equal(model.initial(), before), "the pretrained weights are unchanged"
    logs = model.choice_log_probabilities(model.prepare(examples))
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(6))

    def loss(scale: float) -> float:
        model.use(before + learned + scale * network.to_device(direction))
        with torch.no_grad():
            return float(entropy(model.choice_log_probabilities(model.prepare(examples)).double()))

    slope = (loss(0.02) - loss(-0.02)) / 0.04
    assert float(gradient @ network.to_device(direction)) == pytest.approx(slope, rel=0.05, abs=1e-5)
