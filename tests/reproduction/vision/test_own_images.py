"""Your own images: found in every layout, divided without leaks, decoded safely, and refused in one line."""

import csv
import io
import json
import os
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet as pq

from image_files import write_parquet
from reproduction.tasks.catalogues import ExamplesFile, catalogue
from reproduction.tasks.vision.image_processing import ImageProcessor
from reproduction.tasks.vision.own_images import OwnImages, images_of, own_image_task
from reproduction.tasks.vision.untrusted_images import Undecodable, decoded
from tallmasks.errors import TallmasksError, TallmasksWarning
from tallmasks.io.tensor_files import open_tensors

CLASSES = ("red", "blue")
NAMES = [f"{label}/{number}.png" for label in sorted(CLASSES) for number in range(12)]
LABELS = [name.partition("/")[0] for name in NAMES]
PARTS = ["train"] * 4 + ["validation"] * 4 + ["test"] * 4


def pixels(name: str) -> np.ndarray:
    """Noise that differs from name to name, uint8 [5, 7, 3]."""
    return np.random.default_rng(zlib.crc32(name.encode())).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def save(path: Path, name: str = "", **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(name or path.name)).save(path, **options)


def png(name: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(name)).save(buffer, "PNG")
    return buffer.getvalue()


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_folders(top: Path) -> Path:
    for name in NAMES:
        save(top / name, name)
    return top


def as_divided_folders(top: Path) -> Path:
    for name, part in zip(NAMES, PARTS * 2, strict=True):
        save(top / {"validation": "val"}.get(part, part) / name, name)
    return top


def as_csv(top: Path) -> Path:
    as_folders(top)
    write_rows(top / "all.csv", [{"file_name": n, "label": one} for n, one in zip(NAMES, LABELS, strict=True)])
    return top / "all.csv"


def as_jsonl(top: Path) -> Path:
    rows = [{"file_name": n, "label": one} for n, one in zip(NAMES, LABELS, strict=True)]
    as_folders(top)
    (top / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return top


def as_divided_metadata(top: Path) -> Path:
    as_divided_folders(top)
    for part in ("train", "val", "test"):
        files = sorted((top / part).rglob("*.png"))
        rows = [{"file_name": str(file.relative_to(top / part)), "label": file.parent.name} for file in files]
        write_rows(top / part / "metadata.csv", rows)
    return top


def as_parquet(top: Path) -> Path:
    images = [{"bytes": png(name), "path": "a.png"} for name in NAMES]
    write_parquet(top / "all.parquet", images, [CLASSES.index(label) for label in LABELS], CLASSES)
    return top / "all.parquet"


def as_divided_parquet(top: Path) -> Path:
    for part in {*PARTS}:
        chosen = [(n, one) for n, one, of in zip(NAMES, LABELS, PARTS * 2, strict=True) if of == part]
        table = pa.table({"image": [png(name) for name, _ in chosen], "label": [label for _, label in chosen]})
        top.mkdir(exist_ok=True)
        pq.write_table(table, top / f"{part}-00000-of-00001.parquet")
    return top


def examples(path: Path, split: str, limit: int | None = None, **entry: Any) -> OwnImages:
    task = own_image_task("own", {"images": str(path), "classes": CLASSES, **entry}, table=split != "all")
    return images_of("own", path, json.loads(json.dumps(task.settings)), split, limit, 2, print)


def content(path: Path, split: str, limit: int | None = None, **entry: Any) -> Counter[tuple[bytes, int]]:
    own = examples(path, split, limit, **entry)
    return Counter((image.tobytes(), int(label)) for image, label in zip(own.images(), own.labels, strict=True))


EVERYTHING = Counter((pixels(name).tobytes(), CLASSES.index(label)) for name, label in zip(NAMES, LABELS, strict=True))


@pytest.mark.parametrize("layout", [as_folders, as_csv, as_jsonl, as_parquet])
def test_every_layout_gives_the_same_splits(layout: Any, tmp_path: Path) -> None:
    """The same pictures in another format would be other test data, or have the labels of other pictures."""
    splits = [content(layout(tmp_path / "own"), split) for split in ("train", "validation", "test")]
    assert [sum(split.values()) for split in splits] == [18, 2, 4]
    assert sum(splits, Counter()) == EVERYTHING == content(layout(tmp_path / "own"), "all")
    assert splits == [content(as_folders(tmp_path / "again"), split) for split in ("train", "validation", "test")]


@pytest.mark.parametrize("layout", [as_divided_folders, as_divided_metadata, as_divided_parquet])
def test_a_division_of_the_data_is_kept(layout: Any, tmp_path: Path) -> None:
    """Published test images would be trained on, and accuracies not be comparable."""
    path = layout(tmp_path / "own")
    for part in ("train", "validation", "test"):
        expected = [n for n, of in zip(NAMES, PARTS * 2, strict=True) if of == part]
        assert content(path, part) == Counter(
            (pixels(n).tobytes(), CLASSES.index(n.partition("/")[0])) for n in expected
        )


def test_missing_validation_images_are_taken_from_the_training_images(tmp_path: Path) -> None:
    """Data with train/ and test/ alone could not be used, or validation images would come from the test."""
    before = as_divided_folders(tmp_path / "own")
    test = content(before, "test")
    (before / "val").rename(before / ".val")
    assert content(before, "test") == test
    assert sum(content(before, "train").values()) == 6 and sum(content(before, "validation").values()) == 2


def test_a_picture_that_is_there_twice_is_in_one_split(tmp_path: Path) -> None:
    """A test image would have been trained on: copies have other names, formats or EXIF orientations."""
    path = as_folders(tmp_path / "own")
    for name in NAMES:
        save(path / name.replace("/", "/again").replace(".png", ".bmp"), name)
    turned = Image.fromarray(pixels(NAMES[0])).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x112] = 6
    turned.save(path / "blue/turned.png", exif=exif)
    splits = [
        content(path, split, fractions={"validation": 0.3, "test": 0.3}) for split in ("train", "validation", "test")
    ]
    assert sum(map(len, splits)) == len(NAMES) == len(sum(splits, Counter()))
    assert sum(sum(split.values()) for split in splits) == 2 * len(NAMES) + 1
    few = content(path, "train", limit=3, fractions={"validation": 0.3, "test": 0.3})
    assert sum(few.values()) == 3 and few <= splits[0]


def test_the_catalogue_writes_what_the_processor_returns(tmp_path: Path) -> None:
    """A table would be of other pixels, or not be made again after an image has changed."""
    path, settings = (
        as_csv(tmp_path / "own"),
        {"image_processor_type": "ViTImageProcessor", "size": {"height": 4, "width": 4}},
    )
    params = {"data": {"own": {"images": str(path), "classes": CLASSES}}}
    recipe = catalogue("vision").recipe(
        params, {"preprocess": settings, "examples": {"train": 9}}, "own", "train", Path()
    )
    assert recipe.sources == {"data": path, "images": path.parent}
    catalogue("vision").write(recipe.params, recipe.sources, ExamplesFile(tmp_path / "out", {}, say=lambda line: None))
    stored, own = open_tensors(tmp_path / "out"), examples(path, "train", 9)
    processor = ImageProcessor(settings)
    expected = np.stack([processor.reduced(image) for image in own.images()])
    assert expected.shape == (9, 4, 4, 3) and np.array_equal(stored.read("images"), expected)
    assert np.array_equal(stored.read("labels"), own.labels)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def deep_png(colour: int, channels: int) -> bytes:
    """A PNG of 16 bits a channel, 4 x 4."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = bytes(4 * (1 + 4 * 2 * channels))
    header = struct.pack(">IIBBBBB", 4, 4, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_applied_as_datasets_does(orientation: int) -> None:
    """Phones store pictures lying on their side; a model that was trained on upright ones would be wrong."""
    exif = Image.Exif()
    exif[0x112] = orientation
    encoded = saved(Image.fromarray(pixels("a")), "JPEG", exif=exif)
    expected = datasets.Image().decode_example({"bytes": encoded, "path": None})
    assert np.array_equal(np.asarray(decoded(encoded)), np.asarray(expected))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    """A grey or transparent picture would stop the run, or give the network another number of channels."""
    image = Image.fromarray(pixels("a")).convert(mode)
    encoded = saved(image, "TIFF" if mode == "CMYK" else "PNG")
    assert np.array_equal(np.asarray(decoded(encoded)), np.asarray(image.convert("RGB")))


GIF = saved(Image.fromarray(pixels("a")), "GIF", save_all=True, append_images=[Image.fromarray(pixels("b"))])
BOMB = saved(Image.new("1", (20_000, 20_000)), "PNG")
HOSTILE = {
    "truncated": saved(Image.fromarray(np.tile(pixels("a"), (50, 50, 1))), "JPEG")[:-4000],
    "bomb": BOMB,
    "30,000 x 2": saved(Image.new("RGB", (30_000, 2)), "PNG"),
    "HEIF": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) (w) file\n",
    "empty": b"",
    "grey of 16 bits": deep_png(0, 1), "RGB of 16 bits": deep_png(2, 3), "RGBA of 16 bits": deep_png(6, 4),
    "PPM of 16 bits": b"P6 2 2 65535\n" + bytes(24), "floats": saved(Image.new("F", (2, 2)), "TIFF"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_and_deep_images_are_refused(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    """One image would take the memory, run a program, or be read as black, and nothing would say so."""
    with pytest.raises(Undecodable, match=r"pixels|8 bits a channel|is none of|truncated"):
        decoded(HOSTILE[case])
    assert capfd.readouterr().err == ""


def test_small_and_animated_images_are_images() -> None:
    """1 x 1 pixels, and the first frame of an animation."""
    assert decoded(saved(Image.new("L", (1, 1), 9), "PNG")).getpixel((0, 0)) == (9, 9, 9)
    assert np.array_equal(np.asarray(decoded(GIF)), np.asarray(Image.open(io.BytesIO(GIF)).convert("RGB")))


def test_images_that_cannot_be_decoded_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged file among thousands would stop the run; many would be missing without a word."""
    path = as_folders(tmp_path / "own")
    (path / "red/bad.png").write_bytes(HOSTILE["truncated"])
    with pytest.raises(
        TallmasksError, match=r"1 of 25 images cannot be decoded.*red/bad\.png: image file is truncated"
    ):
        examples(path, "test")
    for number in range(1000):
        (path / f"blue/more{number}.png").hardlink_to(path / "blue/0.png")
    assert len(examples(path, "all").labels) == 1024
    assert "skipped, cannot be decoded: red/bad.png" in capsys.readouterr().out


def test_class_names_are_matched_by_name(tmp_path: Path) -> None:
    """Folders sorted by name would be taken for the model's outputs, and every accuracy be wrong."""
    path = as_folders(tmp_path / "own")
    assert own_image_task("own", {"images": str(path), "classes": ["Red", "BLUE"]}).settings["labels"] == {
        "red": 0,
        "blue": 1,
    }
    assert own_image_task("own", {"images": str(path)}).classes == ("blue", "red")
    rows = [{"file": name, "class": str(CLASSES.index(label))} for name, label in zip(NAMES, LABELS, strict=True)]
    write_rows(path / "all.csv", rows)
    assert content(path / "all.csv", "all", image="file", label="class") == EVERYTHING


def outside(top: Path) -> Path:
    path = as_folders(top)
    save(top.parent / "secret.png")
    (path / "red/link.png").symlink_to(top.parent / "secret.png")
    return path


def folder_link(top: Path) -> Path:
    path = as_folders(top)
    (path / "again").symlink_to(path / "red")
    return path


def table_with(name: str, top: Path) -> Path:
    write_rows(as_csv(top), [{"file_name": name, "label": "red"}, {"file_name": NAMES[0], "label": "blue"}])
    save(top.parent / "secret.png")
    return top / "all.csv"


def changed(top: Path, new: str = "", old: str = "", **files: str) -> Path:
    path = as_folders(top)
    if old:
        (path / old).rename(path / new) if new else [file.unlink() for file in (path / old).iterdir()]
    for name in files.values():
        save(path / name)
    return path


REFUSED = {
    "is a link to .*out of": outside,
    "links to folders": folder_link,
    "is not in .*where the table is": lambda top: table_with("../secret.png", top),
    "row 1: the path is empty": lambda top: table_with("", top),
    "1 path without a file: none.png": lambda top: table_with("none.png", top),
    "'green', which the model does not know": lambda top: changed(top, "green", "red"),
    "'0', which the model does not know": lambda top: changed(top, "0", "red"),
    "blue: found no images of this class": lambda top: changed(top, "", "blue"),
    "x.png: is in no class's folder": lambda top: changed(top, more="x.png"),
    "'Red' and 'red' are the same class": lambda top: changed(top, more="Red/1.png"),
    "no such file or folder": lambda top: top / "none",
}  # fmt: skip


@pytest.mark.parametrize("error", REFUSED)
def test_wrong_data_are_refused_in_a_line(error: str, tmp_path: Path) -> None:
    """The run would stop in the middle, evaluate on other images, or show a file that is not the data's."""
    with pytest.raises(TallmasksError, match=error) as caught:
        examples(REFUSED[error](tmp_path / "own"), "test")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_images_are_said(tmp_path: Path) -> None:
    """Images in a format that nobody reads would be missing without a word; a pipe would block the run."""
    path = as_folders(tmp_path / "own")
    (path / "README.txt").write_text("about")
    (path / "README.md").write_text("about")
    os.mkfifo(path / "red/pipe.png")
    with (
        pytest.warns(TallmasksWarning, match=r"2 files skipped that are no images: README.md, README.txt"),
        pytest.raises(TallmasksError, match=r"red/pipe\.png.*not a regular file"),
    ):
        examples(path, "test")
