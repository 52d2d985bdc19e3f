"""Decodes images that anybody may have made: nothing in them is executed, and their memory is bounded."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from tallmasks.errors import one_line
from tallmasks.io.plain_files import open_plain

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others run programs, as EPS does
LARGEST = 1 << 26  # pixels, 192 MiB in RGB
LONGEST = 200  # longer side / shorter side; a processor that resizes the shorter one makes the rest as much larger
Image.init()  # otherwise it does not know all of these


class Undecodable(Exception):
    """An image that cannot be decoded or is not one of 8 bits; the message says why."""


def decoded(encoded: bytes | Path) -> Image.Image:
    """An image in RGB, turned as its EXIF orientation says; of an animation the first frame.

    Transparency is dropped.  Raises Undecodable.
    """
    with (
        _undecodable(),
        io.BytesIO(encoded) if isinstance(encoded, bytes) else open_plain(encoded) as file,
        Image.open(file, formats=FORMATS) as image,
    ):
        width, height = image.size
        if width * height > LARGEST or max(width, height) > LONGEST * min(width, height):
            raise Undecodable(
                f"found {width} x {height} pixels, expected at most {LARGEST} in total, and a longer side of at most "
                f"{LONGEST} times the shorter one"
            )
        if image.mode.startswith(("I", "F")) or _has_deep_channels(image):
            raise Undecodable("found more than 8 bits a channel, expected 8; convert it")
        return ImageOps.exif_transpose(image).convert("RGB")


def _has_deep_channels(image: Image.Image) -> bool:
    """Whether Pillow would cut channels to 8 bits, which its mode does not say."""
    for codec, _, _, settings in getattr(image, "tile", ()):
        rawmode, *others = settings if isinstance(settings, tuple) else (settings,)
        if ";16" in str(rawmode) and not str(rawmode).startswith("BGR;"):  # BGR;16 are 16 bits a pixel
            return True
        if codec.startswith("ppm") and isinstance(others[0], int) and others[0] > 255:
            return True
    return False


@contextmanager
def _undecodable() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about palettes, EXIF, and sizes that are refused here
            yield
    except Undecodable:
        raise
    except UnidentifiedImageError:
        raise Undecodable(f"is none of {', '.join(FORMATS)}") from None
    except Exception as error:  # a damaged image can make Pillow raise anything
        raise Undecodable(one_line(error)[:200] or type(error).__name__) from None


def pixel_hash(image: Image.Image) -> str:
    """The sha256 of an RGB image's size and pixels."""
    return hashlib.sha256(f"{image.size} ".encode() + image.tobytes()).hexdigest()
