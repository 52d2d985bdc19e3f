"""Batched augmentation of training images: affine and brightness changes, or open_clip's random crops.

Resizing along one axis is a matrix product, so two batched products resize a batch of different crops.  The filter is
bicubic (Catmull-Rom, a = -0.5) with antialiasing, as in Pillow and torchvision.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

CROP_AREA = (0.9, 1.0)  # fraction of the image, as in open_clip's training transform
CROP_RATIO = (3 / 4, 4 / 3)  # width / height, as in torchvision's RandomResizedCrop
CROP_TRIES = 10


def augment(
    images: torch.Tensor,
    generator: torch.Generator,
    *,
    rotation: float,
    scale: float,
    shift: float,
    brightness: float,
    noise: float,
) -> torch.Tensor:
    """Change each image of [N, 3, H, W], pixels in -1 to 1, by random amounts up to these limits.

    Args:
        rotation: Degrees, in both directions.
        scale: Fraction of the size, larger or smaller.
        shift: Fraction of half the image side, in both directions.
        brightness: Change of contrast (a fraction) and of brightness.
        noise: Standard deviation of the pixel noise.
    """
    count = len(images)

    def spread(limit: float) -> torch.Tensor:
        return ((2 * torch.rand(count, generator=generator) - 1) * limit).to(images.device)

    turn, zoom = spread(math.radians(rotation)), 1 + spread(scale)
    cos, sin = turn.cos() * zoom, turn.sin() * zoom
    affine = torch.stack([cos, -sin, spread(shift), sin, cos, spread(shift)], dim=1).view(count, 2, 3)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    relit = moved * (1 + spread(brightness)).view(-1, 1, 1, 1) + spread(brightness).view(-1, 1, 1, 1)
    strength = torch.rand(count, 1, 1, 1, generator=generator) * noise
    return relit + (strength * torch.randn(images.shape, generator=generator)).to(images.device)


def crop_and_resize(images: torch.Tensor, boxes: torch.Tensor, side: int) -> torch.Tensor:
    """Crop images uint8 [N, H, W, 3] and resize the crops to uint8 [N, side, side, 3], on the images' device.

    ``boxes``: float32 [N, 4], top, left, height and width of each crop, as fractions of the image.
    """
    pixels = images.permute(0, 3, 1, 2).float()
    top, left, height, width = boxes.to(images.device).T
    rows = _weights(top, height, images.shape[1], side)
    columns = _weights(left, width, images.shape[2], side)
    # Pillow rounds between its two passes
    narrowed = (pixels @ columns[:, None].transpose(2, 3)).round_().clamp_(0, 255)
    return (rows[:, None] @ narrowed).round_().clamp_(0, 255).byte().permute(0, 2, 3, 1)


def _weights(start: torch.Tensor, extent: torch.Tensor, source: int, target: int) -> torch.Tensor:
    """Interpolation matrices, float32 [N, target, source]; each row sums to 1.

    ``start`` and ``extent``, [N], are fractions of the source; ``source`` and ``target`` are numbers of pixels.
    """
    first, length = start.double() * source, extent.double() * source
    scale = length / target
    width = scale.clamp(min=1)[:, None, None]  # of the kernel in source pixels; more than 1 only to shrink
    device = start.device
    middles = first[:, None] + (torch.arange(target, device=device) + 0.5) * scale[:, None]
    pixels = torch.arange(source, device=device) + 0.5
    distance = ((pixels - middles[:, :, None]) / width).abs()
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    first_used = (first + 1e-3).floor()[:, None]  # whole pixels: Pillow crops before it resizes
    last_used = (first + length - 1e-3).ceil()[:, None]
    inside = (pixels > first_used) & (pixels < last_used)
    weights = weights * inside[:, None]
    return (weights / weights.sum(dim=2, keepdim=True)).float()


def random_crops(sizes: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random boxes float32 [N, 4] for `crop_and_resize`, as drawn by RandomResizedCrop in open_clip's transform.

    A box is the first of ten tries that fits, or else the largest allowed crop of the centre.

    ``sizes``: int [N, 2], the original height and width of each image; ``generator``: on the CPU.
    """
    count = len(sizes)
    height, width = sizes[:, :1].double(), sizes[:, 1:].double()
    low, high = CROP_AREA
    area = height * width * (low + (high - low) * torch.rand(count, CROP_TRIES, generator=generator).double())
    log_low, log_high = (math.log(ratio) for ratio in CROP_RATIO)
    ratio = (log_low + (log_high - log_low) * torch.rand(count, CROP_TRIES, generator=generator).double()).exp()
    widths, heights = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    chosen = fits.int().argmax(dim=1, keepdim=True)
    crop = torch.cat([heights.gather(1, chosen), widths.gather(1, chosen)], dim=1)
    corner = (torch.rand(count, 2, generator=generator).double() * (sizes - crop + 1)).floor()
    middle_height = torch.minimum(height, (width / CROP_RATIO[0]).round())
    middle_width = torch.minimum(width, (height * CROP_RATIO[1]).round())
    middle = torch.cat([middle_height, middle_width], dim=1)
    some = fits.any(dim=1, keepdim=True)
    crop = torch.where(some, crop, middle)
    corner = torch.where(some, corner, ((sizes - middle) / 2).floor())
    return torch.cat([corner / sizes, crop / sizes], dim=1).float()
