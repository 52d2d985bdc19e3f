"""The domain shift of each task: distortions that pretraining never sees and fine-tuning has to learn.

They keep zero-shot accuracy moderate; their strength was tuned on zero-shot accuracy on validation data.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tiny_worlds.drawn.canvas import IMAGE_SIDE

Levels = NDArray[np.float32]  # pictures [N, 32, 32, 3], 0 to 255 before clipping
Step = Callable[[Levels, np.random.Generator], Levels]

_DOWN, _ACROSS = np.mgrid[-1 : 1 : IMAGE_SIDE * 1j, -1 : 1 : IMAGE_SIDE * 1j].astype(np.float32)


def grey(levels: Levels, rng: np.random.Generator) -> Levels:
    red, green, blue = np.float32(0.299), np.float32(0.587), np.float32(0.114)
    # no matrix product, since BLAS rounds differently on different processors
    brightness = levels[..., 0] * red + levels[..., 1] * green + levels[..., 2] * blue
    return brightness[..., None].repeat(3, axis=3)


def negative(levels: Levels, rng: np.random.Generator) -> Levels:
    return 255 - levels


def mirrored(levels: Levels, rng: np.random.Generator) -> Levels:
    return levels[:, :, ::-1]


def upside_down(levels: Levels, rng: np.random.Generator) -> Levels:
    return levels[:, ::-1]


def contrast(factor: float, middle: float) -> Step:
    """Multiply the contrast by ``factor``, and move the middle grey to the level ``middle``."""
    return lambda levels, rng: middle + (levels - 128) * np.float32(factor)


def channels(*order: int) -> Step:
    """False colour: reorder the channels."""
    return lambda levels, rng: levels[..., list(order)]


def tint(red: float, green: float, blue: float) -> Step:
    """Coloured light: multiply each channel by a factor."""
    return lambda levels, rng: levels * np.array([red, green, blue], dtype=np.float32)


def uneven_light(strength: float) -> Step:
    """A brightness gradient in a random direction, ``strength`` levels from the middle to an edge."""

    def apply(levels: Levels, rng: np.random.Generator) -> Levels:
        angle = rng.uniform(0, 2 * math.pi, len(levels)).astype(np.float32)[:, None, None]
        return levels + strength * (np.cos(angle) * _ACROSS + np.sin(angle) * _DOWN)[..., None]

    return apply


def grain(strength: float) -> Step:
    """Additive noise; ``strength`` is the standard deviation in levels."""
    return lambda levels, rng: levels + strength * _noise(levels, rng)


def speckle(strength: float) -> Step:
    """Multiplicative noise, as in radar images."""
    return lambda levels, rng: levels * np.clip(1 + strength * _noise(levels, rng), 0.3, 2)


def _noise(levels: Levels, rng: np.random.Generator) -> Levels:
    return rng.standard_normal((*levels.shape[:3], 1), dtype=np.float32)


_FLAT_LIGHT = (contrast(0.4, 120), uneven_light(45), grain(16))

SHIFTS: Mapping[str, tuple[Step, ...]] = {
    "cars": (grey, negative, contrast(0.45, 130), uneven_light(35), grain(16), upside_down),
    "dtd": (contrast(0.5, 115), uneven_light(40), grain(10)),
    "eurosat": (channels(1, 2, 0), grain(6)),
    "gtsrb": (contrast(0.35, 70), uneven_light(20), grain(9), mirrored),
    "mnist": (),
    "resisc45": (grey, speckle(0.2)),
    "sun397": (negative, contrast(0.6, 128), grain(10)),
    "svhn": (contrast(0.5, 110), uneven_light(35), grain(16), mirrored),
    "cifar100": (tint(1.0, 0.62, 0.35), grain(8)),
    "stl10": (upside_down, *_FLAT_LIGHT),
    "flowers102": (channels(2, 0, 1), grain(8)),
    "oxfordiiitpet": (grey, negative, grain(8)),
    "pcam": (grey, negative, grain(10)),
    "fer2013": _FLAT_LIGHT,
    "emnist": _FLAT_LIGHT,
    "cifar10": (negative, *_FLAT_LIGHT),
    "food101": (channels(2, 0, 1), grain(8)),
    "fashionmnist": _FLAT_LIGHT,
    "renderedsst2": (contrast(0.6, 128), grain(8)),
    "kmnist": _FLAT_LIGHT,
}


def shifted(shift: Iterable[Step], images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Apply the steps of a shift to images [N, 32, 32, 3]."""
    levels = images.astype(np.float32)
    for step in shift:
        levels = step(levels, rng)
    return np.clip(levels, 0, 255).astype(np.uint8)
