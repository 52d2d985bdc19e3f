"""Random changes of many training images at once: moved and relit, or cropped as in open_clip's training transform.

Resizing along one axis is a matrix product, so two batched products resize a batch of different crops.  It is bicubic
with antialiasing, as in Pillow and torchvision: Catmull and Rom's kernel (a = -0.5), widened where an image shrinks.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

CROP_AREA = (0.9, 1.0)  # of the image: open_clip's training transform
CROP_RATIO = (3 / 4, 4 / 3)  # width by height: torchvision's RandomResizedCrop
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
    """Every image [N, 3, H, W] rotated, scaled, shifted, relit and made noisy by its own random amounts.

    Args:
        rotation: Degrees to either side at most; all others are limits too.
        scale: Share of the size, larger or smaller.
        shift: Share of half the image side, in both directions.
        brightness: Change of contrast (share) and of brightness (in units where an image spans -1 to 1).
        noise: Largest standard deviation of the pixel noise, same units.
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
    """Crop images and make the crops squares of one size.

    Args:
        images: uint8 [N, H, W, 3].
        boxes: float32 [N, 4], every image's crop as shares of its height and width: top, left, height, width.
        side: Pixels of the result's side.

    Returns:
        uint8 [N, side, side, 3], on the images' device.
    """
    pixels = images.permute(0, 3, 1, 2).float()
    top, left, height, width = boxes.to(images.device).T
    rows = _weights(top, height, images.shape[1], side)
    columns = _weights(left, width, images.shape[2], side)
    narrowed = (pixels @ columns[:, None].transpose(2, 3)).round_().clamp_(0, 255)  # as Pillow does in between
    return (rows[:, None] @ narrowed).round_().clamp_(0, 255).byte().permute(0, 2, 3, 1)


def _weights(start: torch.Tensor, extent: torch.Tensor, source: int, target: int) -> torch.Tensor:
    """The weight of each source pixel in each target pixel, float32 [N, target, source]; rows sum to 1.

    Start and extent of each crop [N] are shares of the source; source and target are numbers of pixels.
    """
    first, length = start.double() * source, extent.double() * source
    scale = length / target
    width = scale.clamp(min=1)[:, None, None]  # of the kernel, in source pixels; no wider where the image grows
    device = start.device
    middles = first[:, None] + (torch.arange(target, device=device) + 0.5) * scale[:, None]
    pixels = torch.arange(source, device=device) + 0.5
    distance = ((pixels - middles[:, :, None]) / width).abs()
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    first_used = (first + 1e-3).floor()[:, None]  # whole pixels, as Pillow crops before it resizes
    last_used = (first + length - 1e-3).ceil()[:, None]
    inside = (pixels > first_used) & (pixels < last_used)
    weights = weights * inside[:, None]
    return (weights / weights.sum(dim=2, keepdim=True)).float()


def random_crops(sizes: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Crops as torchvision's RandomResizedCrop draws them for open_clip's training transform.

    ``sizes``: int [N, 2], the original height and width of every image; ``generator``: on the CPU.

    Returns:
        float32 [N, 4] for `crop_and_resize`: the first of ten tries that fits; else the middle of the image, as large
        as the ratio allows.
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
    middle = torch.cat(
        [
            torch.minimum(height, (width / CROP_RATIO[0]).round()),
            torch.minimum(width, (height * CROP_RATIO[1]).round()),
        ],
        dim=1,
    )
    some = fits.any(dim=1, keepdim=True)
    crop = torch.where(some, crop, middle)
    corner = torch.where(some, corner, ((sizes - middle) / 2).floor())
    return torch.cat([corner / sizes, crop / sizes], dim=1).float()
