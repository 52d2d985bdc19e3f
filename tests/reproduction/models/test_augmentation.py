"""Random changes and crops on the device."""

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, RandomResizedCrop, functional

from reproduction.models.clip.augmentation import augment, crop_and_resize, random_crops


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
            theirs = functional.resized_crop(
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
