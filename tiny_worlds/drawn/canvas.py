"""The canvas that all drawn tasks use: random numbers, colours, shapes and distortions.

Pictures are drawn at 64 x 64 pixels and halved at the end, which smooths edges.  There are two styles.  *Clean* is
bright, upright and centred.  *Field* is the task's own domain, with other fonts and colours, clutter, rotation and
noise.  Pretraining sees both, but only clean pictures have captions with the words of the prompts.
"""

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIDE = 64  # pixels on a side while drawing
CENTRE = SIDE / 2
IMAGE_SIDE = 32  # pixels on a side of a finished example
TRIES = 200  # to find colours with enough contrast

Colour = tuple[int, int, int]
Point = tuple[float, float]
Draw = Callable[["Canvas", int], None]  # draws an example of a label
Option = TypeVar("Option")
Bounds = tuple[float, float, float, float]  # the arguments of `Canvas.tilt`

WHITE: Colour = (245, 245, 245)
BLACK: Colour = (15, 15, 15)


@functools.cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A TrueType font that matplotlib ships; the size is in pixels."""
    import matplotlib  # takes 0.2 s, so only when something is drawn

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    return ImageFont.truetype(str(path), size)


def luminance(colour: Colour) -> float:
    """Perceived brightness, 0 to 255 (ITU-R BT.601 weights)."""
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue


def blend(first: Colour, second: Colour, share: float = 0.5) -> Colour:
    """A mix of two colours; ``share`` is the fraction of the first."""
    red, green, blue = (int(share * a + (1 - share) * b) for a, b in zip(first, second, strict=True))
    return red, green, blue


def regular_polygon(x: float, y: float, radius: float, corners: int, turn: float) -> list[Point]:
    """Corners of a regular polygon; ``turn`` is the angle of the first corner in radians."""
    step = 2 * math.pi / corners
    return [
        (x + radius * math.cos(turn + step * corner), y + radius * math.sin(turn + step * corner))
        for corner in range(corners)
    ]


class Canvas:
    """One picture and its random generator; ``field`` selects the field style instead of the clean one."""

    def __init__(self, rng: np.random.Generator, field: bool) -> None:
        self.rng = rng
        self.field = field
        self.background: Colour = WHITE
        self.fill(WHITE)

    # Chance

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def whole(self, low: int, high: int) -> int:
        """A uniform integer in [low, high], both ends included."""
        return low + int((high - low + 1) * self.rng.random())

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, options: Sequence[Option]) -> Option:
        return options[self.whole(0, len(options) - 1)]

    def tried(self, make: Callable[[], Option], fits: Callable[[Option], bool]) -> Option:
        """The first result of `make` that fits, or the last one after ``TRIES`` attempts."""
        attempt = make()
        for _ in range(TRIES):
            if fits(attempt):
                break
            attempt = make()
        return attempt

    def styled(self, clean: Option, field: Option) -> Option:
        return field if self.field else clean

    # Colour

    def any_colour(self, low: int = 0, high: int = 255) -> Colour:
        return self.whole(low, high), self.whole(low, high), self.whole(low, high)

    def any_grey(self, low: int, high: int) -> Colour:
        level = self.whole(low, high)
        return level, level, level

    def near(self, colour: Colour, clean: int, field: int | None = None) -> Colour:
        """A random colour that differs by at most ``clean`` (or ``field``) levels per channel."""
        reach = self.styled(clean, clean if field is None else field)
        red, green, blue = (max(0, min(255, level + self.whole(-reach, reach))) for level in colour)
        return red, green, blue

    def contrasting_pair(self) -> tuple[Colour, Colour]:
        """Background and foreground with enough contrast; clean backgrounds are nearly white or black."""

        def pair() -> tuple[Colour, Colour]:
            if self.field:
                return self.any_colour(), self.any_colour()
            return self.any_colour(200, 255) if self.chance(0.6) else self.any_colour(0, 50), self.any_colour()

        contrast = self.styled(100, 90)
        return self.tried(pair, lambda colours: abs(luminance(colours[0]) - luminance(colours[1])) > contrast)

    # Shapes

    def fill(self, colour: Colour) -> None:
        """Erase the picture."""
        self.background = colour
        self._renew(Image.new("RGB", (SIDE, SIDE), colour))

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        self.pen.polygon(points, fill=colour)

    def line(self, points: Sequence[Point], colour: Colour, width: int) -> None:
        self.pen.line(points, fill=colour, width=width)

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        self.pen.rectangle((left, top, right, bottom), fill=colour)

    def oval(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        self.pen.ellipse((left, top, right, bottom), fill=colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        self.pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def ring(self, x: float, y: float, radius: float, colour: Colour, width: int) -> None:
        self.pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=width)

    def arc(self, x: float, y: float, radius: float, start: float, end: float, colour: Colour, width: int) -> None:
        """Angles are in degrees, clockwise from three o'clock."""
        self.pen.arc((x - radius, y - radius, x + radius, y + radius), start, end, fill=colour, width=width)

    def sector(self, x: float, y: float, radius: float, start: float, end: float, colour: Colour) -> None:
        """A slice of a disc; angles as in `arc`."""
        self.pen.pieslice((x - radius, y - radius, x + radius, y + radius), start, end, fill=colour)

    def regular(self, x: float, y: float, radius: float, corners: int, colour: Colour, turn: float = -90) -> None:
        """A regular polygon; ``turn`` is the angle of its first corner in degrees."""
        self.polygon(regular_polygon(x, y, radius, corners, math.radians(turn)), colour)

    def star(self, x: float, y: float, radius: float, colour: Colour, points: int = 5, inner: float = 0.42) -> None:
        """``inner``: distance of the inner corners from the centre, as a fraction of the radius."""
        turn = -math.pi / 2
        outside = regular_polygon(x, y, radius, points, turn)
        inside = regular_polygon(x, y, inner * radius, points, turn + math.pi / points)
        self.polygon([corner for pair in zip(outside, inside, strict=True) for corner in pair], colour)

    def cross(self, x: float, y: float, radius: float, colour: Colour, thickness: float = 0.3) -> None:
        """An upright cross; the arms are ``2 * thickness * radius`` wide."""
        arm = thickness * radius
        self.box(x - radius, y - arm, x + radius, y + arm, colour)
        self.box(x - arm, y - radius, x + arm, y + radius, colour)

    def arrow(self, x: float, y: float, radius: float, angle: float, colour: Colour, width: int) -> None:
        """An arrow through (x, y); the angle of its direction is as in `arc`."""
        along_x, along_y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        tip = (x + radius * along_x, y + radius * along_y)
        tail = (x - radius * along_x, y - radius * along_y)
        neck = (x + 0.25 * radius * along_x, y + 0.25 * radius * along_y)
        barb_x, barb_y = 0.55 * radius * along_y, 0.55 * radius * along_x
        self.line([tail, (x + 0.5 * radius * along_x, y + 0.5 * radius * along_y)], colour, width)
        self.polygon([tip, (neck[0] - barb_x, neck[1] + barb_y), (neck[0] + barb_x, neck[1] - barb_y)], colour)

    def text(self, characters: str, font_name: str, size: int, colour: Colour, x: float = 32, y: float = 32) -> None:
        self.pen.text((x, y), characters, font=font(font_name, size), fill=colour, anchor="mm")

    def paint(self, coverage: NDArray[np.floating], background: Colour, foreground: Colour) -> None:
        """Blend two colours by a map [64, 64]; 0 is background, 1 is foreground."""
        share = coverage[..., None]
        levels = np.asarray(background) * (1 - share) + np.asarray(foreground) * share
        self._renew(Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8)))

    # Distortions

    def clutter(self, count: int, spread: int | None = None) -> None:
        """Random lines and squares, in any colour or at most ``spread`` levels from the background."""
        for _ in range(count):
            colour = self.any_colour() if spread is None else self.near(self.background, spread)
            x, y = self.whole(0, SIDE), self.whole(0, SIDE)
            if self.chance(0.5):
                self.line([(x, y), (self.whole(0, SIDE), self.whole(0, SIDE))], colour, self.whole(1, 4))
            else:
                half = self.whole(3, 14)
                self.box(x - half, y - half, x + half, y + half, colour)

    def grain(self, strength: float) -> None:
        """Brightness noise per finished pixel; ``strength`` is the standard deviation in levels."""
        noise = self.rng.standard_normal((IMAGE_SIDE, IMAGE_SIDE), dtype=np.float32) * strength
        levels = np.asarray(self.image, dtype=np.float32) + noise.repeat(2, 0).repeat(2, 1)[..., None]
        self._renew(Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8)))

    def tilt(self, angle: float, smallest: float, largest: float, shift: float) -> None:
        """Rotate by up to ``angle`` degrees, scale by ``smallest`` to ``largest``, move by up to ``shift`` pixels."""
        turn = math.radians(self.between(-angle, angle))
        zoom = 1 / self.between(smallest, largest)
        cos, sin = math.cos(turn) * zoom, math.sin(turn) * zoom
        move_x, move_y = self.between(-shift, shift), self.between(-shift, shift)
        x = CENTRE - cos * CENTRE - sin * CENTRE + move_x
        y = CENTRE + sin * CENTRE - cos * CENTRE + move_y
        size, affine, bilinear = self.image.size, Image.Transform.AFFINE, Image.Resampling.BILINEAR
        inverse_map = (cos, sin, x, -sin, cos, y)
        self._renew(self.image.transform(size, affine, inverse_map, bilinear, fillcolor=self.background))

    def distort(self, grain: float, *, field: Bounds, clean: Bounds) -> None:
        """Grain and `tilt` in the field style, a weaker `tilt` in the clean one."""
        if self.field:
            self.grain(grain)
        self.tilt(*self.styled(clean, field))

    def mirror(self) -> None:
        self._renew(self.image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))

    def quarter_turns(self, count: int) -> None:
        self._renew(self.image.rotate(90 * count))

    def blur(self, radius: float) -> None:
        """Gaussian blur; the radius is in pixels before halving."""
        self._renew(self.image.filter(ImageFilter.GaussianBlur(radius)))

    def dim(self, factor: float, lift: float) -> None:
        self._renew(self.image.point(lambda level: int(max(0, min(255, level * factor + lift)))))

    def finished(self) -> NDArray[np.uint8]:
        """The picture at half size, uint8 [32, 32, 3]."""
        return np.asarray(self.image.reduce(2), dtype=np.uint8)

    def _renew(self, image: Image.Image) -> None:
        self.image = image
        self.pen = ImageDraw.Draw(image)
