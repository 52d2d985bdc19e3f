"""Tasks of reading: digits, letters, Greek letters, words."""

import functools

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tiny_worlds.drawn.canvas import CENTRE, IMAGE_SIDE, Canvas

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = tuple("abcdefghjk")  # no i, which is only a bar
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "lambda": "λ", "pi": "π", "sigma": "σ", "omega": "ω",
    "phi": "φ", "theta": "θ",
}  # fmt: skip
WORDS = {"negative": ("bad", "sad", "poor", "hate"), "positive": ("good", "love", "nice", "great")}

CLEAN_FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold")
FIELD_FONTS = ("STIXGeneral", "STIXGeneralBol", "cmr10", "cmss10", "cmtt10", "DejaVuSerif-Bold", "cmb10")
CLEAN_GREEK_FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSans-Bold")
FIELD_GREEK_FONTS = ("STIXGeneralItalic", "STIXGeneralBolIta", "DejaVuSerif-Italic", "STIXGeneralBol")


def white_digit(canvas: Canvas, label: int) -> None:
    """A printed white digit on black; there is no field style, since the task uses real handwriting."""
    canvas.fill(canvas.any_grey(0, 30))
    canvas.text(str(label), canvas.pick(CLEAN_FONTS), canvas.whole(44, 58), canvas.any_grey(200, 255))
    canvas.tilt(10, 0.85, 1.1, 5)


@functools.cache
def handwritten_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """scikit-learn's 1,797 real handwritten digits: images uint8 [1797, 32, 32, 3], labels int64 [1797]."""
    from sklearn.datasets import load_digits  # slow to import

    digits = load_digits()
    small = [Image.fromarray(pixels) for pixels in (digits.images * 15.9).astype(np.uint8)]
    enlarged = np.stack([np.asarray(image.resize((IMAGE_SIDE, IMAGE_SIDE))) for image in small])
    return enlarged[..., None].repeat(3, axis=3), digits.target.astype(np.int64)


def house_number(canvas: Canvas, label: int) -> None:
    """A digit; in the field style on a blue plate between two neighbours that are cut off."""
    if not canvas.field:
        background, ink = canvas.contrasting_pair()
        canvas.fill(background)
        canvas.text(str(label), canvas.pick(CLEAN_FONTS), canvas.whole(44, 58), ink)
        canvas.tilt(5, 0.85, 1.1, 5)
        return
    canvas.fill(canvas.near((60, 70, 120), 40))
    ink, font_name, size = canvas.near((225, 220, 200), 25), canvas.pick(FIELD_FONTS[:4]), canvas.whole(42, 52)
    for x in (-8, 72):
        canvas.text(str(canvas.whole(0, 9)), font_name, size, ink, x + canvas.whole(-2, 2), CENTRE)
    canvas.text(str(label), font_name, size, ink, CENTRE, CENTRE + canvas.whole(-3, 3))
    canvas.grain(10)
    canvas.tilt(8, 0.9, 1.1, 3)


def _chalk_glyph(canvas: Canvas, glyph: str, fonts: tuple[str, ...], sizes: tuple[int, int]) -> None:
    """One glyph; light on dark in the field style."""
    if canvas.field:
        background, ink = canvas.any_grey(0, 60), canvas.any_grey(170, 255)
    else:
        background, ink = canvas.contrasting_pair()
    canvas.fill(background)
    canvas.text(glyph, canvas.pick(fonts), canvas.whole(*sizes), ink)
    canvas.distort(18, field=(18, 0.8, 1.1, 5), clean=(4, 0.95, 1.1, 5))


def letter(canvas: Canvas, label: int) -> None:
    _chalk_glyph(canvas, LETTERS[label].upper(), canvas.styled(CLEAN_FONTS, FIELD_FONTS), (42, 54))


def greek_letter(canvas: Canvas, label: int) -> None:
    fonts = canvas.styled(CLEAN_GREEK_FONTS, FIELD_GREEK_FONTS)
    _chalk_glyph(canvas, tuple(GREEK.values())[label], fonts, (48, 60))


def word(canvas: Canvas, label: int) -> None:
    if canvas.field:
        background, ink = canvas.any_grey(200, 255), canvas.any_grey(0, 90)
    else:
        background, ink = canvas.contrasting_pair()
    canvas.fill(background)
    characters = canvas.pick(tuple(WORDS.values())[label])
    font_name, size = canvas.pick(canvas.styled(CLEAN_FONTS, FIELD_FONTS)), canvas.styled(22, canvas.whole(20, 24))
    drop = canvas.styled(2, 8)
    canvas.text(characters, font_name, size, ink, y=CENTRE + canvas.whole(-drop, drop))
    if canvas.field:
        canvas.grain(12)
        canvas.tilt(7, 0.9, 1.1, 3)
