"""Tasks of whole scenes: textures, land from above, tissue, places."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tiny_worlds.drawn.canvas import CENTRE, SIDE, WHITE, Canvas

TEXTURES = (
    "horizontal stripes", "vertical stripes", "diagonal stripes", "checkerboard", "polka dots", "grainy noise", "grid",
    "zigzag", "concentric circles", "smooth gradient", "bricks", "blotches",
)  # fmt: skip
LAND = (
    "forest", "river", "highway", "residential area", "sea", "farmland", "desert", "snow field", "orchard",
    "industrial area",
)  # fmt: skip
AERIAL = (
    "airplane", "ship", "stadium", "intersection", "bridge", "tennis court", "storage tanks", "runway", "palace",
    "island", "railway", "parking lot",
)  # fmt: skip
TISSUE = ("healthy", "cancer")
PLACES = (
    "beach", "mountains", "city at night", "volcano", "pine wood", "street", "sunset", "waterfall", "castle",
    "lighthouse", "tent camp", "windmill",
)  # fmt: skip

_ROWS, _COLUMNS = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)


def _coverage(canvas: Canvas, kind: str) -> NDArray[np.floating]:
    """The fraction of the foreground colour in each pixel, [64, 64]."""
    period = canvas.between(*canvas.styled((12.0, 18.0), (10.0, 21.0)))
    across, down = canvas.between(0, period), canvas.between(0, period)
    turn = math.radians(canvas.between(-14, 14)) if canvas.field else 0.0
    x = _COLUMNS * math.cos(turn) + _ROWS * math.sin(turn) + 10 * period
    y = _ROWS * math.cos(turn) - _COLUMNS * math.sin(turn) + 10 * period

    def half(position: NDArray[np.floating]) -> NDArray[np.bool_]:
        return position % period < period / 2

    pattern: NDArray[np.generic]
    if kind == "horizontal stripes":
        pattern = half(y + down)
    elif kind == "vertical stripes":
        pattern = half(x + across)
    elif kind == "diagonal stripes":
        pattern = half((x + canvas.pick((-1, 1)) * y) * math.sqrt(0.5) + 20 * period + across)
    elif kind == "checkerboard":
        pattern = half(x + across) ^ half(y + down)
    elif kind == "polka dots":
        pattern = np.hypot((x + across) % period - period / 2, (y + down) % period - period / 2) < 0.3 * period
    elif kind == "grainy noise":
        pattern = canvas.rng.random((SIDE // 2, SIDE // 2)).repeat(2, 0).repeat(2, 1)
    elif kind == "grid":
        pattern = ((x + across) % period < 0.2 * period) | ((y + down) % period < 0.2 * period)
    elif kind == "zigzag":
        pattern = half(y + 1.2 * np.abs((x + across) % period - period / 2) + down)
    elif kind == "concentric circles":
        middle_x, middle_y = CENTRE + canvas.between(-8, 8), CENTRE + canvas.between(-8, 8)
        pattern = half(np.hypot(_COLUMNS - middle_x, _ROWS - middle_y) + across)
    elif kind == "smooth gradient":
        angle = canvas.between(0, 2 * math.pi)
        pattern = 0.5 + ((_COLUMNS - CENTRE) * math.cos(angle) + (_ROWS - CENTRE) * math.sin(angle)) / 80
    elif kind == "bricks":
        course = ((y + down) // (period / 2)).astype(int)
        joint = (x + across + course % 2 * period / 2) % period < 2
        pattern = joint | ((y + down) % (period / 2) < 2)
    else:  # blotches
        coarse = Image.fromarray(canvas.rng.standard_normal((6, 6), dtype=np.float32))
        pattern = np.clip(np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) * 0.8 + 0.5, 0, 1)
    return pattern.astype(np.float32)


def texture(canvas: Canvas, label: int) -> None:
    background, foreground = canvas.contrasting_pair()
    coverage = _coverage(canvas, TEXTURES[label])
    if canvas.field and canvas.chance(0.5):
        coverage = coverage * canvas.between(0.7, 1)
    canvas.paint(coverage, background, foreground)


def land_cover(canvas: Canvas, label: int) -> None:
    kind = LAND[label]

    def ground(red: int, green: int, blue: int) -> None:
        canvas.fill(canvas.near((red, green, blue), 15, 60))

    ground(70, 130, 60)
    if kind == "forest":
        ground(25, 80, 35)
        canvas.grain(22)
    elif kind in ("river", "highway"):
        river = kind == "river"
        angle, sway = canvas.between(0, math.pi), canvas.between(8, 14) if river else canvas.between(0, 1)
        course = [
            (
                CENTRE + step * math.cos(angle) - math.sin(angle) * sway * math.sin(step / 9),
                CENTRE + step * math.sin(angle) + math.cos(angle) * sway * math.sin(step / 9),
            )
            for step in range(-50, 51, 4)
        ]
        canvas.line(course, canvas.near((50, 90, 170) if river else (150, 150, 150), 15, 60), canvas.whole(7, 11))
        if not river:
            canvas.line(course, WHITE, 1)
    elif kind in ("residential area", "orchard", "industrial area"):
        ground(*((130, 150, 80) if kind == "orchard" else (150, 145, 130)))
        step = 28 if kind == "industrial area" else 12
        for x in range(canvas.whole(0, 6), SIDE, step):
            for y in range(canvas.whole(0, 6), SIDE, step):
                if kind == "industrial area":
                    canvas.box(x, y, x + 0.6 * step, y + 0.75 * step, canvas.near((215, 215, 225), 30))
                elif canvas.chance(0.15):
                    continue
                elif kind == "orchard":
                    canvas.oval(x, y, x + 7, y + 7, canvas.near((30, 90, 30), 15))
                else:
                    canvas.box(x, y, x + 0.6 * step, y + 0.55 * step, canvas.near((170, 80, 60), 30))
    elif kind == "sea":
        ground(30, 70, 150)
        canvas.grain(6)
    elif kind == "farmland":
        crops = ((170, 160, 70), (110, 150, 60), (190, 170, 110), (90, 120, 50))
        left = 0
        while left < SIDE:
            width, top = canvas.whole(10, 20), 0
            while top < SIDE:
                height = canvas.whole(12, 28)
                canvas.box(left, top, left + width, top + height, canvas.near(canvas.pick(crops), 17, 40))
                top += height
            left += width
    elif kind == "desert":
        ground(215, 180, 120)
        canvas.grain(8)
    else:  # snow field
        canvas.fill(canvas.near((235, 240, 245), 7, 30))
        canvas.grain(8)
    if canvas.field:
        canvas.grain(10)
        canvas.quarter_turns(canvas.whole(0, 3))


def aerial(canvas: Canvas, label: int) -> None:
    kind = AERIAL[label]
    light, asphalt = canvas.near((235, 235, 235), 20), (140, 140, 140)
    if kind in ("ship", "bridge", "island"):
        canvas.fill(canvas.near((40, 80, 150), 15, 40))
    else:
        canvas.fill(canvas.near((120, 140, 100), 15, 70))
    if canvas.field:
        canvas.clutter(4, spread=28)
    if kind == "airplane":
        canvas.line([(32, 8), (32, 56)], light, 6)
        canvas.polygon([(32, 22), (6, 40), (6, 45), (32, 36), (58, 45), (58, 40)], light)
        canvas.polygon([(32, 48), (22, 57), (42, 57)], light)
    elif kind == "ship":
        canvas.polygon([(32, 6), (41, 20), (41, 56), (23, 56), (23, 20)], light)
        canvas.box(27, 32, 37, 46, (120, 60, 50))
    elif kind == "stadium":
        canvas.oval(6, 14, 58, 50, (190, 190, 190))
        canvas.oval(16, 21, 48, 43, (60, 150, 70))
    elif kind == "intersection":
        canvas.box(26, 0, 38, 64, asphalt)
        canvas.box(0, 26, 64, 38, asphalt)
    elif kind == "bridge":
        canvas.box(0, 25, 64, 38, (160, 150, 140))
        for x in range(4, SIDE, 10):
            canvas.line([(x, 25), (x, 38)], (90, 90, 90), 2)
    elif kind == "tennis court":
        canvas.box(12, 8, 52, 56, (180, 90, 60))
        canvas.line([(18, 14), (46, 14), (46, 50), (18, 50), (18, 14)], light, 2)
        canvas.line([(18, 32), (46, 32)], light, 2)
    elif kind == "storage tanks":
        for x in (18, 46):
            for y in (18, 46):
                canvas.disc(x, y, 10, light)
                canvas.ring(x, y, 10, (90, 90, 90), 1)
    elif kind == "runway":
        canvas.box(22, 0, 42, 64, (90, 90, 95))
        for y in range(0, SIDE, 12):
            canvas.box(30, y, 34, y + 6, light)
    elif kind == "palace":
        canvas.box(8, 20, 56, 54, (220, 200, 150))
        canvas.box(22, 34, 42, 54, canvas.background)
        canvas.box(24, 8, 40, 22, (180, 150, 100))
    elif kind == "island":
        canvas.oval(12, 14, 52, 50, (220, 200, 140))
        canvas.oval(19, 20, 45, 44, (60, 130, 60))
    elif kind == "railway":
        for x in (24, 40):
            canvas.line([(x, 0), (x, 64)], (70, 60, 60), 3)
        for y in range(2, SIDE, 8):
            canvas.line([(18, y), (46, y)], (110, 80, 60), 2)
    else:  # parking lot
        canvas.box(2, 2, 62, 62, (130, 130, 135))
        for x in range(6, 60, 12):
            for y in (8, 38):
                canvas.box(x, y, x + 6, y + 16, canvas.any_colour())
    if canvas.field:
        canvas.grain(9)
    canvas.tilt(canvas.styled(8, 35), 0.75, 1.1, 5)


def tissue(canvas: Canvas, label: int) -> None:
    """Cells under a microscope; the large dark nucleus is round (healthy) or cross-shaped (cancer)."""
    canvas.fill(canvas.near((235, 200, 220), 10, 30))
    for _ in range(canvas.styled(3, canvas.whole(4, 7))):
        cell = canvas.near((150, 90, 170), 10, 30)
        canvas.disc(canvas.between(4, 60), canvas.between(4, 60), canvas.between(4, 7), cell)
    x, y, radius = canvas.between(20, 44), canvas.between(20, 44), canvas.between(11, 14)
    nucleus = canvas.near((90, 30, 110), 15)
    if TISSUE[label] == "cancer":
        canvas.cross(x, y, radius, nucleus)
    else:
        canvas.disc(x, y, 0.8 * radius, nucleus)
    if canvas.field:
        canvas.grain(12)
        canvas.tilt(45, 0.9, 1.1, 5)


def place(canvas: Canvas, label: int) -> None:
    kind = PLACES[label]
    shade = canvas.near

    def sky_and_ground(sky: tuple[int, int, int], ground: tuple[int, int, int], horizon: int = 42) -> None:
        canvas.fill(shade(sky, 15, 45))
        canvas.box(0, horizon + canvas.whole(-2, 2), SIDE, SIDE, shade(ground, 15, 45))

    if kind == "beach":
        sky_and_ground((140, 200, 240), (230, 205, 140))
        canvas.box(0, 30, SIDE, 43, shade((40, 110, 190), 15, 40))
        canvas.disc(canvas.between(10, 54), 12, 6, (250, 225, 90))
    elif kind == "mountains":
        sky_and_ground((170, 205, 235), (90, 140, 80), 50)
        for x, top in ((18, 18), (44, 10)):
            canvas.polygon([(x - 24, 52), (x, top), (x + 24, 52)], shade((110, 110, 120), 15, 30))
            canvas.polygon([(x - 7, top + 11), (x, top), (x + 7, top + 11)], WHITE)
    elif kind == "city at night":
        sky_and_ground((20, 20, 50), (40, 40, 45), 56)
        for x in range(2, SIDE - 8, 12):
            top = canvas.whole(14, 36)
            canvas.box(x, top, x + 9, 58, shade((70, 70, 85), 10, 25))
            for y in range(top + 4, 54, 8):
                canvas.box(x + 3, y, x + 6, y + 3, (250, 225, 120))
    elif kind == "volcano":
        sky_and_ground((150, 140, 150), (70, 60, 55), 54)
        canvas.polygon([(4, 56), (24, 20), (40, 20), (60, 56)], shade((85, 65, 60), 10, 25))
        canvas.polygon([(26, 20), (38, 20), (44, 46), (34, 34), (24, 44)], shade((240, 90, 20), 15, 30))
    elif kind == "pine wood":
        sky_and_ground((180, 215, 230), (90, 110, 60), 54)
        for x in (10, 26, 42, 56):
            top = canvas.whole(8, 20)
            canvas.polygon([(x - 9, 54), (x, top), (x + 9, 54)], shade((25, 90, 50), 12, 30))
            canvas.box(x - 2, 54, x + 2, 60, (90, 60, 40))
    elif kind == "street":
        sky_and_ground((170, 205, 235), (110, 150, 90), 30)
        canvas.polygon([(28, 30), (36, 30), (62, 64), (2, 64)], shade((95, 95, 100), 12, 25))
        for y in (34, 44, 56):
            canvas.box(31, y, 33, y + 5, WHITE)
    elif kind == "sunset":
        sky_and_ground((245, 150, 70), (60, 50, 90), 40)
        canvas.sector(canvas.between(22, 42), 40, 15, 180, 360, (250, 225, 110))
    elif kind == "waterfall":
        sky_and_ground((110, 100, 90), (50, 110, 180), 52)
        canvas.box(0, 0, SIDE, 10, shade((70, 150, 70), 12, 30))
        canvas.box(22, 6, 42, 54, shade((225, 240, 250), 8, 20))
    elif kind == "castle":
        sky_and_ground((170, 205, 235), (100, 150, 80), 54)
        stone = shade((140, 135, 130), 12, 30)
        canvas.box(12, 30, 52, 56, stone)
        for x in (8, 44):
            canvas.box(x, 18, x + 12, 56, stone)
            canvas.box(x, 14, x + 3, 18, stone)
            canvas.box(x + 9, 14, x + 12, 18, stone)
        canvas.box(27, 42, 37, 56, (60, 45, 40))
    elif kind == "lighthouse":
        sky_and_ground((150, 195, 235), (40, 90, 160), 52)
        for step, colour in enumerate((WHITE, (210, 40, 40), WHITE, (210, 40, 40))):
            canvas.box(26, 20 + 9 * step, 38, 29 + 9 * step, shade(colour, 8, 20))
        canvas.polygon([(22, 12), (42, 6), (42, 20), (22, 18)], (250, 230, 120))
    elif kind == "tent camp":
        sky_and_ground((60, 80, 130), (80, 120, 70), 46)
        for x in (18, 46):
            canvas.polygon([(x - 15, 56), (x, 28), (x + 15, 56)], shade((230, 130, 40), 15, 40))
            canvas.polygon([(x - 4, 56), (x, 36), (x + 4, 56)], (60, 40, 30))
    else:  # windmill
        sky_and_ground((160, 205, 240), (120, 170, 80), 50)
        canvas.polygon([(24, 58), (28, 24), (36, 24), (40, 58)], shade((150, 100, 70), 12, 30))
        for angle in range(0, 360, 90):
            reach = math.radians(angle + canvas.between(30, 60))
            canvas.line([(32, 24), (32 + 22 * math.cos(reach), 24 + 22 * math.sin(reach))], WHITE, 5)
    if canvas.field:
        canvas.clutter(3, spread=30)
        canvas.grain(10)
    canvas.tilt(canvas.styled(3, 12), 0.9, 1.1, canvas.styled(2, 5))
