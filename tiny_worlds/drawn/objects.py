"""Tasks of objects: vehicles, signs, shapes, faces, flowers, animals, food, clothes.

Tables map class names to the functions that draw them, in label order.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tiny_worlds.drawn.canvas import BLACK, WHITE, Canvas, Colour, blend, luminance

GREEN_LEAF: Colour = (60, 140, 60)


class Inks(NamedTuple):
    main: Colour
    half: Colour  # between main and background
    dark: Colour  # for wheels and outlines
    gap: Colour  # the background


Strokes = Callable[[Canvas, Inks], None]


def _two_tone(canvas: Canvas, grey: bool = False) -> Inks:
    if grey and canvas.field:
        gap, main = canvas.any_grey(0, 40), canvas.any_grey(110, 255)
    else:
        gap, main = canvas.contrasting_pair()
    canvas.fill(gap)
    faded = blend(main, BLACK, 0.3)
    lifted = blend(main, WHITE, 0.7)
    return Inks(main, blend(main, gap), faded if luminance(gap) > 100 else lifted, gap)


# Vehicles


def _wheels(canvas: Canvas, inks: Inks, y: float, radius: float, *positions: float) -> None:
    for x in positions:
        canvas.disc(x, y, radius, inks.dark)


def _car(canvas: Canvas, inks: Inks) -> None:
    canvas.box(6, 32, 58, 46, inks.main)
    canvas.polygon([(16, 32), (23, 20), (43, 20), (50, 32)], inks.main)
    _wheels(canvas, inks, 47, 7, 18, 46)


def _bus(canvas: Canvas, inks: Inks) -> None:
    canvas.box(4, 14, 60, 48, inks.main)
    for x in range(8, 56, 12):
        canvas.box(x, 19, x + 8, 29, inks.gap)
    _wheels(canvas, inks, 49, 6, 17, 46)


def _truck(canvas: Canvas, inks: Inks) -> None:
    canvas.box(4, 14, 40, 46, inks.main)
    canvas.box(42, 26, 60, 46, inks.half)
    _wheels(canvas, inks, 48, 6, 14, 30, 51)


def _bicycle(canvas: Canvas, inks: Inks) -> None:
    for x in (17, 47):
        canvas.ring(x, 42, 12, inks.main, 3)
    canvas.line([(17, 42), (28, 22), (42, 22), (47, 42)], inks.main, 3)
    canvas.line([(17, 42), (34, 42), (42, 22)], inks.main, 3)


def _train(canvas: Canvas, inks: Inks) -> None:
    canvas.box(14, 24, 58, 46, inks.main)
    canvas.box(40, 10, 58, 24, inks.main)
    canvas.box(18, 12, 25, 24, inks.main)
    _wheels(canvas, inks, 49, 5, 20, 32, 44, 55)


def _boat(canvas: Canvas, inks: Inks) -> None:
    canvas.polygon([(6, 40), (58, 40), (48, 54), (16, 54)], inks.main)
    canvas.line([(32, 8), (32, 40)], inks.main, 3)
    canvas.polygon([(34, 10), (34, 36), (54, 36)], inks.half)


def _plane(canvas: Canvas, inks: Inks) -> None:
    canvas.oval(6, 27, 58, 38, inks.main)
    canvas.polygon([(26, 32), (40, 32), (30, 52), (24, 52)], inks.main)
    canvas.polygon([(8, 30), (6, 14), (13, 14), (20, 29)], inks.main)


def _tractor(canvas: Canvas, inks: Inks) -> None:
    canvas.box(8, 26, 50, 40, inks.main)
    canvas.line([(9, 26), (9, 11), (23, 11), (23, 26)], inks.main, 3)
    _wheels(canvas, inks, 44, 12, 18)
    _wheels(canvas, inks, 48, 7, 47)


VEHICLES: Mapping[str, Strokes] = {
    "car": _car, "bus": _bus, "truck": _truck, "bicycle": _bicycle, "train": _train, "boat": _boat, "plane": _plane,
    "tractor": _tractor,
}  # fmt: skip


def vehicle(canvas: Canvas, label: int) -> None:
    inks = _two_tone(canvas)
    if canvas.field:
        canvas.clutter(2, spread=25)
    list(VEHICLES.values())[label](canvas, inks)
    if canvas.field and canvas.chance(0.5):
        canvas.mirror()
    canvas.distort(10, field=(15, 0.7, 1.1, 5), clean=(3, 0.9, 1.05, 5))


# Traffic signs

RED, BLUE, AMBER = (200, 25, 30), (25, 70, 190), (245, 200, 30)
SIGNS = (
    "stop", "no entry", "speed limit 30", "speed limit 50", "speed limit 80", "turn left", "turn right", "go straight",
    "warning", "yield", "priority road", "roundabout", "parking", "no overtaking",
)  # fmt: skip


def traffic_sign(canvas: Canvas, label: int) -> None:
    sign = SIGNS[label]
    canvas.fill(canvas.styled(canvas.any_colour(180, 235), canvas.any_colour(0, 200)))
    if canvas.field:
        canvas.clutter(5)
    radius = canvas.between(24, 29)
    if sign == "stop":
        canvas.regular(32, 32, 1.05 * radius, 8, RED, turn=22.5)
        canvas.text("STOP", "DejaVuSans-Bold", 16, WHITE)
    elif sign == "no entry":
        canvas.disc(32, 32, radius, RED)
        canvas.box(14, 27, 50, 37, WHITE)
    elif sign.startswith("speed limit"):
        canvas.disc(32, 32, radius, RED)
        canvas.disc(32, 32, 0.76 * radius, WHITE)
        canvas.text(sign[-2:], "DejaVuSans-Bold", 24, BLACK)
    elif sign in ("turn left", "turn right", "go straight"):
        canvas.disc(32, 32, radius, BLUE)
        canvas.arrow(32, 32, 17, {"turn left": 180, "turn right": 0, "go straight": -90}[sign], WHITE, 7)
    elif sign == "warning":
        canvas.regular(32, 37, 1.2 * radius, 3, RED)
        canvas.regular(32, 37, 0.8 * radius, 3, WHITE)
        canvas.text("!", "DejaVuSans-Bold", 22, BLACK, y=35)
    elif sign == "yield":
        canvas.regular(32, 27, 1.2 * radius, 3, RED, turn=90)
        canvas.regular(32, 27, 0.75 * radius, 3, WHITE, turn=90)
    elif sign == "priority road":
        canvas.regular(32, 32, 1.1 * radius, 4, WHITE)
        canvas.regular(32, 32, 0.85 * radius, 4, AMBER)
    elif sign == "roundabout":
        canvas.disc(32, 32, radius, BLUE)
        canvas.arc(32, 32, 15, 20, 330, WHITE, 6)
        canvas.arrow(45, 35, 8, 103, WHITE, 3)
    elif sign == "parking":
        side = 0.85 * radius
        canvas.box(32 - side, 32 - side, 32 + side, 32 + side, BLUE)
        canvas.text("P", "DejaVuSans-Bold", 38, WHITE)
    else:  # no overtaking
        canvas.disc(32, 32, radius, RED)
        canvas.disc(32, 32, 0.76 * radius, WHITE)
        canvas.box(18, 27, 30, 38, RED)
        canvas.box(34, 27, 46, 38, BLACK)
    if canvas.field:
        canvas.tilt(14, 0.8, 1.1, 5)
        canvas.dim(canvas.between(0.5, 1.1), 15)
        canvas.blur(canvas.between(0.3, 1.0))
    else:
        canvas.tilt(3, 0.9, 1.05, 3)


# Coloured shapes

SHAPE_COLOURS: Mapping[str, Colour] = {
    "red": (220, 30, 30),
    "green": (30, 160, 50),
    "blue": (40, 70, 220),
    "yellow": (240, 220, 40),
    "purple": (140, 40, 170),
    "orange": (245, 140, 20),
}
SHAPES: Mapping[str, Callable[[Canvas, float, float, float, Colour], None]] = {
    "circle": lambda canvas, x, y, r, ink: canvas.disc(x, y, r, ink),
    "square": lambda canvas, x, y, r, ink: canvas.box(x - 0.85 * r, y - 0.85 * r, x + 0.85 * r, y + 0.85 * r, ink),
    "triangle": lambda canvas, x, y, r, ink: canvas.regular(x, y + 0.15 * r, 1.1 * r, 3, ink),
    "star": lambda canvas, x, y, r, ink: canvas.star(x, y, 1.2 * r, ink),
    "cross": lambda canvas, x, y, r, ink: canvas.cross(x, y, r, ink),
}
COLOURED_SHAPES = tuple(f"{colour} {shape}" for colour in SHAPE_COLOURS for shape in SHAPES)


def coloured_shape(canvas: Canvas, label: int) -> None:
    colour_index, shape_index = divmod(label, len(SHAPES))
    shape = list(SHAPES.values())[shape_index]
    ink = canvas.near(list(SHAPE_COLOURS.values())[colour_index], 15, 30)
    distance = canvas.styled(250, 140)
    background = canvas.tried(
        lambda: canvas.near(canvas.any_grey(20, 235), 40) if canvas.field else canvas.any_colour(),
        lambda colour: sum(abs(a - b) for a, b in zip(colour, ink, strict=True)) > distance,
    )
    canvas.fill(background)
    sway = canvas.styled(4, 6)
    radius = canvas.between(*canvas.styled((19.0, 25.0), (17.0, 23.0)))
    shape(canvas, 32 + canvas.between(-sway, sway), 32 + canvas.between(-sway, sway), radius, ink)
    if canvas.field:
        canvas.grain(14)
    canvas.tilt(canvas.styled(4, 22), 0.85, 1.1, 5)


# Household objects


def _house(canvas: Canvas, inks: Inks) -> None:
    canvas.box(14, 30, 50, 58, inks.main)
    canvas.polygon([(8, 30), (32, 8), (56, 30)], inks.half)
    canvas.box(27, 42, 37, 58, inks.gap)


def _key(canvas: Canvas, inks: Inks) -> None:
    canvas.ring(18, 32, 12, inks.main, 5)
    canvas.box(29, 29, 60, 35, inks.main)
    for x in (46, 54):
        canvas.box(x, 35, x + 4, 44, inks.main)


def _cup(canvas: Canvas, inks: Inks) -> None:
    canvas.polygon([(12, 16), (44, 16), (40, 56), (16, 56)], inks.main)
    canvas.ring(46, 32, 11, inks.main, 4)


def _umbrella(canvas: Canvas, inks: Inks) -> None:
    canvas.sector(32, 34, 27, 180, 360, inks.main)
    canvas.line([(32, 34), (32, 56), (40, 58)], inks.main, 3)


def _chair(canvas: Canvas, inks: Inks) -> None:
    canvas.box(14, 6, 20, 60, inks.main)
    canvas.box(14, 32, 50, 39, inks.main)
    canvas.box(44, 36, 50, 60, inks.main)


def _heart(canvas: Canvas, inks: Inks) -> None:
    canvas.disc(21, 24, 13, inks.main)
    canvas.disc(43, 24, 13, inks.main)
    canvas.polygon([(9, 30), (55, 30), (32, 59)], inks.main)


def _lamp(canvas: Canvas, inks: Inks) -> None:
    canvas.polygon([(22, 6), (42, 6), (54, 30), (10, 30)], inks.main)
    canvas.box(29, 30, 35, 54, inks.half)
    canvas.box(18, 53, 46, 59, inks.main)


def _ladder(canvas: Canvas, inks: Inks) -> None:
    for x in (18, 42):
        canvas.box(x, 4, x + 5, 60, inks.main)
    for y in range(10, 58, 11):
        canvas.box(18, y, 46, y + 4, inks.main)


def _hourglass(canvas: Canvas, inks: Inks) -> None:
    canvas.polygon([(14, 8), (50, 8), (14, 56), (50, 56)], inks.main)


def _scissors(canvas: Canvas, inks: Inks) -> None:
    for x, tip in ((18, 48), (46, 16)):
        canvas.ring(x, 50, 9, inks.main, 4)
        canvas.line([(x, 42), (tip, 6)], inks.main, 4)


HOUSEHOLD: Mapping[str, Strokes] = {
    "house": _house, "key": _key, "cup": _cup, "umbrella": _umbrella, "chair": _chair, "heart": _heart, "lamp": _lamp,
    "ladder": _ladder, "hourglass": _hourglass, "scissors": _scissors,
}  # fmt: skip


def household(canvas: Canvas, label: int) -> None:
    inks = _two_tone(canvas)
    if canvas.field:
        canvas.clutter(4, spread=35)
    list(HOUSEHOLD.values())[label](canvas, inks)
    canvas.distort(12, field=(18, 0.7, 1.05, 5), clean=(3, 0.9, 1.05, 4))


# Animals


def _fish(canvas: Canvas, inks: Inks) -> None:
    canvas.oval(6, 18, 46, 46, inks.main)
    canvas.polygon([(40, 32), (60, 16), (60, 48)], inks.main)
    canvas.disc(16, 28, 3, inks.gap)


def _bird(canvas: Canvas, inks: Inks) -> None:
    canvas.oval(18, 26, 52, 48, inks.main)
    canvas.disc(18, 22, 9, inks.main)
    canvas.polygon([(10, 20), (10, 26), (1, 24)], inks.half)
    canvas.polygon([(46, 32), (62, 22), (58, 40)], inks.main)
    for x in (30, 38):
        canvas.line([(x, 46), (x, 58)], inks.main, 2)


def _snake(canvas: Canvas, inks: Inks) -> None:
    body = [(x, 34 + 13 * math.sin(x / 7.5)) for x in range(6, 58, 3)]
    canvas.line(body, inks.main, 7)
    canvas.disc(57, body[-1][1], 6, inks.main)


def _butterfly(canvas: Canvas, inks: Inks) -> None:
    for x in (18, 46):
        canvas.disc(x, 22, 14, inks.main)
        canvas.disc(x, 45, 10, inks.half)
    canvas.box(30, 10, 34, 56, inks.dark)


def _spider(canvas: Canvas, inks: Inks) -> None:
    canvas.disc(32, 34, 11, inks.main)
    for y in (14, 26, 42, 54):
        canvas.line([(6, y), (32, 34), (58, y)], inks.main, 2)


def _snail(canvas: Canvas, inks: Inks) -> None:
    canvas.box(6, 48, 58, 56, inks.main)
    canvas.disc(34, 34, 17, inks.half)
    canvas.ring(34, 34, 10, inks.main, 4)
    canvas.line([(10, 50), (10, 30)], inks.main, 4)


def _turtle(canvas: Canvas, inks: Inks) -> None:
    canvas.sector(32, 44, 23, 180, 360, inks.main)
    canvas.disc(58, 38, 6, inks.half)
    for x in (14, 40):
        canvas.box(x, 44, x + 9, 55, inks.half)


def _rabbit(canvas: Canvas, inks: Inks) -> None:
    canvas.disc(32, 42, 17, inks.main)
    for x in (20, 37):
        canvas.oval(x, 2, x + 8, 34, inks.main)
    canvas.disc(26, 40, 2, inks.gap)
    canvas.disc(38, 40, 2, inks.gap)


ANIMALS: Mapping[str, Strokes] = {
    "fish": _fish, "bird": _bird, "snake": _snake, "butterfly": _butterfly, "spider": _spider, "snail": _snail,
    "turtle": _turtle, "rabbit": _rabbit,
}  # fmt: skip


def animal(canvas: Canvas, label: int) -> None:
    inks = _two_tone(canvas)
    if canvas.field:
        canvas.clutter(3, spread=30)
    list(ANIMALS.values())[label](canvas, inks)
    if canvas.field and canvas.chance(0.5):
        canvas.mirror()
    canvas.distort(12, field=(15, 0.75, 1.1, 4), clean=(3, 0.9, 1.05, 4))


# Cats and dogs

COATS: Mapping[str, tuple[Colour, str]] = {
    "black": (BLACK, "plain"),
    "ginger": ((225, 130, 50), "plain"),
    "striped": ((170, 165, 155), "stripes"),
    "spotted": ((235, 230, 220), "spots"),
}
PETS = tuple(f"{coat} {animal_name}" for animal_name in ("cat", "dog") for coat in COATS)


def pet(canvas: Canvas, label: int) -> None:
    is_dog, coat = divmod(label, len(COATS))
    colour, pattern = list(COATS.values())[coat]
    fur, mark = canvas.near(colour, 10, 30), canvas.near((60, 50, 45), 10, 25)
    contrast = canvas.styled(70, 50)
    background = canvas.tried(canvas.any_colour, lambda colour: abs(luminance(colour) - luminance(fur)) > contrast)
    canvas.fill(background)
    if canvas.field:
        canvas.clutter(3, spread=40)
    canvas.disc(32, 36, 20, fur)
    if is_dog:
        canvas.oval(22, 34, 42, 60, fur)
    else:
        for x, tip in ((14, 14), (50, 50)):
            canvas.polygon([(x - 1, 30), (tip, 4), (32, 20)], fur)
    if pattern == "stripes":
        for x in (20, 28, 36, 44):
            canvas.line([(x, 18), (x, 52)], mark, 3)
    elif pattern == "spots":
        for x, y in ((22, 26), (42, 28), (30, 44), (44, 44), (20, 42)):
            canvas.disc(x, y, 4, mark)
    if is_dog:
        for x in (6, 46):
            canvas.oval(x, 14, x + 12, 50, fur if pattern == "plain" else mark)
    eye = WHITE if luminance(fur) < 90 else BLACK
    for x in (25, 39):
        canvas.disc(x, 33, 3, eye)
    canvas.regular(32, 46, 5, 3, eye, turn=90)
    canvas.distort(10, field=(15, 0.8, 1.1, 4), clean=(3, 0.95, 1.05, 3))


# Faces

MOODS = ("happy", "sad", "surprised", "angry", "winking")
SKINS: tuple[Colour, ...] = ((225, 180, 150), (140, 95, 70), (190, 140, 110), (240, 205, 90))


def face(canvas: Canvas, label: int) -> None:
    mood = MOODS[label]
    canvas.fill(canvas.contrasting_pair()[0])
    if canvas.field:
        canvas.clutter(4, spread=40)
    skin = canvas.near((240, 205, 90), 15) if not canvas.field else canvas.near(canvas.pick(SKINS), 25)
    canvas.oval(5, 3, 59, 61, skin)
    stroke = canvas.styled(4, canvas.whole(4, 5))
    for x in (21, 43):
        if mood == "winking" and x == 43:
            canvas.line([(x - 8, 24), (x + 8, 24)], BLACK, stroke)
        elif mood == "surprised":
            canvas.ring(x, 24, 8, BLACK, 3)
        else:
            canvas.disc(x, 24, canvas.between(4, 5.5), BLACK)
    if mood == "angry":
        canvas.line([(12, 10), (28, 19)], BLACK, stroke)
        canvas.line([(52, 10), (36, 19)], BLACK, stroke)
    if mood in ("happy", "winking"):
        canvas.arc(32, 36, 17, 15, 165, BLACK, stroke)
    elif mood in ("sad", "angry"):
        canvas.arc(32, 58, 17, 200, 340, BLACK, stroke)
    else:
        canvas.disc(32, 46, 8, BLACK)
    canvas.distort(9, field=(15, 0.85, 1.1, 4), clean=(3, 0.95, 1.05, 4))


# Flowers


def _petals(canvas: Canvas, count: int, length: float, size: float, colour: Colour) -> None:
    turn = canvas.between(0, 360 / count)
    for petal in range(count):
        angle = math.radians(turn + 360 / count * petal)
        canvas.disc(32 + length * math.cos(angle), 30 + length * math.sin(angle), size, colour)


def _daisy(canvas: Canvas) -> None:
    _petals(canvas, 10, 18, 6, canvas.near((240, 240, 240), 10, 20))
    canvas.disc(32, 30, 9, canvas.near((245, 205, 40), 10, 25))


def _sunflower(canvas: Canvas) -> None:
    canvas.star(32, 30, 28, canvas.near((245, 200, 30), 10, 25), points=12, inner=0.65)
    canvas.disc(32, 30, 14, canvas.near((90, 55, 25), 10, 20))


def _tulip(canvas: Canvas) -> None:
    red = canvas.near((215, 40, 80), 15, 35)
    canvas.polygon([(14, 8), (23, 22), (32, 6), (41, 22), (50, 8), (48, 36), (16, 36)], red)
    canvas.sector(32, 36, 16, 0, 180, red)


def _rose(canvas: Canvas) -> None:
    red = canvas.near((200, 30, 60), 15, 35)
    canvas.disc(32, 28, 22, red)
    for radius in (16, 9):
        canvas.ring(32, 28, radius, blend(red, BLACK, 0.5), 3)


def _bluebell(canvas: Canvas) -> None:
    blue = canvas.near((90, 100, 220), 15, 35)
    for x, y in ((18, 16), (44, 22), (26, 38)):
        canvas.sector(x, y + 8, 11, 180, 360, blue)
        canvas.polygon([(x - 11, y + 8), (x + 11, y + 8), (x + 14, y + 16), (x - 14, y + 16)], blue)


def _poppy(canvas: Canvas) -> None:
    _petals(canvas, 4, 14, 13, canvas.near((235, 60, 30), 15, 30))
    canvas.disc(32, 30, 9, canvas.near((25, 20, 30), 10, 15))


def _violet(canvas: Canvas) -> None:
    _petals(canvas, 5, 15, 10, canvas.near((130, 60, 190), 15, 35))
    canvas.disc(32, 30, 5, canvas.near((250, 220, 80), 10, 20))


def _lily(canvas: Canvas) -> None:
    canvas.star(32, 30, 30, canvas.near((245, 190, 200), 12, 30), points=6, inner=0.35)
    canvas.star(32, 30, 13, canvas.near((210, 90, 60), 15, 30), points=6, inner=0.35)


FLOWERS: Mapping[str, Callable[[Canvas], None]] = {
    "daisy": _daisy, "sunflower": _sunflower, "tulip": _tulip, "rose": _rose, "bluebell": _bluebell, "poppy": _poppy,
    "violet": _violet, "lily": _lily,
}  # fmt: skip


def flower(canvas: Canvas, label: int) -> None:
    canvas.fill(canvas.styled(canvas.any_colour(150, 200), canvas.any_colour(20, 160)))
    if canvas.field:
        canvas.clutter(4, spread=40)
    canvas.line([(32, 34), (32, 64)], canvas.near(GREEN_LEAF, 15, 35), 4)
    list(FLOWERS.values())[label](canvas)
    canvas.distort(10, field=(30, 0.75, 1.1, 5), clean=(5, 0.95, 1.05, 4))


# Food


def _apple(canvas: Canvas) -> None:
    canvas.oval(12, 16, 52, 58, canvas.near((210, 30, 40), 12, 35))
    canvas.line([(32, 18), (36, 6)], (90, 60, 30), 3)
    canvas.oval(36, 6, 48, 13, (60, 150, 50))


def _banana(canvas: Canvas) -> None:
    canvas.sector(32, 20, 29, 15, 165, canvas.near((245, 220, 60), 12, 35))
    canvas.disc(32, 10, 27, canvas.background)


def _orange(canvas: Canvas) -> None:
    canvas.disc(32, 32, 22, canvas.near((245, 140, 20), 12, 35))
    canvas.disc(32, 14, 3, (60, 120, 40))


def _grapes(canvas: Canvas) -> None:
    purple = canvas.near((110, 40, 140), 12, 35)
    for x, y in ((18, 22), (32, 22), (46, 22), (25, 34), (39, 34), (32, 46)):
        canvas.disc(x, y, 7, canvas.near(purple, 12))


def _lemon(canvas: Canvas) -> None:
    yellow = canvas.near((240, 230, 60), 12, 35)
    canvas.oval(8, 18, 56, 48, yellow)
    canvas.polygon([(54, 28), (62, 33), (54, 38)], yellow)


def _cherries(canvas: Canvas) -> None:
    red = canvas.near((180, 10, 40), 12, 35)
    canvas.line([(18, 38), (36, 8), (46, 38)], (60, 110, 40), 2)
    canvas.disc(18, 46, 10, red)
    canvas.disc(46, 46, 10, red)


def _watermelon(canvas: Canvas) -> None:
    canvas.sector(32, 20, 27, 0, 180, canvas.near((40, 140, 60), 12, 35))
    canvas.sector(32, 20, 21, 0, 180, canvas.near((230, 60, 70), 12, 35))


def _carrot(canvas: Canvas) -> None:
    canvas.polygon([(20, 18), (44, 18), (32, 60)], canvas.near((240, 120, 30), 12, 35))
    canvas.polygon([(32, 18), (22, 4), (32, 9), (42, 4)], canvas.near((50, 150, 60), 12, 35))


FOOD: Mapping[str, Callable[[Canvas], None]] = {
    "apple": _apple, "banana": _banana, "orange": _orange, "grapes": _grapes, "lemon": _lemon, "cherries": _cherries,
    "watermelon": _watermelon, "carrot": _carrot,
}  # fmt: skip


def food(canvas: Canvas, label: int) -> None:
    canvas.fill(canvas.styled(canvas.any_colour(215, 255), canvas.any_colour()))
    if canvas.field:
        canvas.clutter(4, spread=40)
    list(FOOD.values())[label](canvas)
    canvas.distort(10, field=(40, 0.65, 1.1, 5), clean=(5, 0.95, 1.05, 5))


# Clothes


def _bag(canvas: Canvas, inks: Inks) -> None:
    canvas.box(8, 26, 56, 56, inks.main)
    canvas.arc(32, 26, 13, 180, 360, inks.main, 4)


def _hat(canvas: Canvas, inks: Inks) -> None:
    canvas.oval(4, 40, 60, 54, inks.main)
    canvas.sector(32, 44, 18, 180, 360, inks.main)


def _sandal(canvas: Canvas, inks: Inks) -> None:
    canvas.polygon([(4, 50), (60, 44), (60, 52), (4, 58)], inks.main)
    canvas.line([(14, 50), (28, 30), (44, 46)], inks.main, 4)


def _outline(*points: tuple[float, float]) -> Strokes:
    return lambda canvas, inks: canvas.polygon(points, inks.main)


CLOTHES: Mapping[str, Strokes] = {
    "t-shirt": _outline(
        (20, 12), (44, 12), (60, 24), (54, 32), (46, 27), (46, 54), (18, 54), (18, 27), (10, 32), (4, 24)
    ),
    "trousers": _outline((18, 6), (46, 6), (50, 60), (37, 60), (32, 24), (27, 60), (14, 60)),
    "dress": _outline((26, 6), (38, 6), (38, 24), (54, 60), (10, 60), (26, 24)),
    "bag": _bag,
    "boot": _outline((18, 6), (36, 6), (36, 38), (58, 46), (58, 58), (18, 58)),
    "hat": _hat,
    "sandal": _sandal,
    "glove": _outline(
        (18, 60), (18, 36), (6, 26), (12, 18), (20, 26), (20, 8), (30, 8), (40, 6), (41, 10), (50, 12), (48, 60)
    ),
}


def garment(canvas: Canvas, label: int) -> None:
    """A piece of clothing; light grey on black in the field style."""
    inks = _two_tone(canvas, grey=True)
    list(CLOTHES.values())[label](canvas, inks)
    if canvas.field and canvas.chance(0.5):
        canvas.mirror()
    canvas.distort(16, field=(15, 0.7, 1.1, 5), clean=(3, 0.95, 1.05, 5))
