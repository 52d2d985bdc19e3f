"""The real images: read from packages in the layout of the published ones, and DINOv2 from an ONNX file."""

import gzip
import json
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from real_images import encoder, image_catalogue, image_tasks
from real_images.image_catalogue import CATALOGUE, split_of
from real_images.image_tasks import TASKS, Picture
from reproduction.tasks.catalogues import ExamplesFile
from tallmasks.errors import TallmasksError

COUNTS = {"test": 20, "validation": 10, "train": 70}
PREPROCESS = {"image_processor_type": "BitImageProcessor"}
MODEL = {"tasks": "real_images", "examples": {"seed": 0, **COUNTS}, "preprocess": PREPROCESS}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few invented pictures and tables in the files of the packages."""
    monkeypatch.setattr(image_catalogue, "PACKAGES", tmp_path)

    def write(name: str, content: bytes | Image.Image) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else content.save(path)

    write(image_tasks.DIGITS, gzip.compress((",".join(["9"] * 784) + ",7\n").encode()))
    cells = ["images/a.png  1.0  mono", "images/b.png  0.0  mono", "images/c.png  0.3333333333333333  mono"]
    write(f"{image_tasks.CELLS}/labels.csv", "\n".join([*cells, "images/d.png  1.0  poly"]).encode())
    write(f"{image_tasks.CELLS}/images/a.png", Image.new("L", (8, 8), 50))
    write(f"{image_tasks.TEXTILE_IMAGES}/local/textile_1.jpg", Image.new("L", (8, 8)))
    earth = Image.new("RGB", (720, 360), "blue")
    earth.paste("green", (360, 0, 720, 360))
    write(image_tasks.BLUE_MARBLE, earth)
    write(image_tasks.RELIEF, earth)
    zones = Image.new("L", (720, 360), 32)
    zones.paste(1, (360, 0, 365, 5))  # one tile of 2.5 degrees
    zones.paste(31, (365, 0, 370, 5))
    zones.paste(30, (370, 0, 375, 5))
    write(image_tasks.ZONES, zones)
    write(image_tasks.ZONE_NAMES, b",kg_zone,zoneNum\n1,Af,1\n30,EF,30\n31,ET,31\n32,Ocean,32\n")
    ring = [(0, 90), (2.5, 90), (2.5, 87.5), (0, 87.5), (0, 90)]
    points = struct.pack("<i4d3i", 5, 0, 87.5, 2.5, 90, 1, len(ring), 0)
    shape = points + struct.pack(f"<{2 * len(ring)}d", *(value for point in ring for value in point))
    write(image_tasks.COUNTRIES, bytes(100) + struct.pack(">2i", 1, len(shape) // 2) + shape)
    fields = b"".join(
        name.ljust(16, b"\0") + bytes([size]) + bytes(15) for name, size in ((b"pop", 4), (b"continent", 6))
    )
    table = bytes(8) + struct.pack("<HH", 32 + len(fields) + 1, 11) + bytes(20) + fields + b"\r" + b" 1234Africa"
    write(image_tasks.COUNTRY_NAMES, table)
    names = [
        {"unified": "1F600", "category": "Smileys & Emotion", "name": "GRINNING FACE"},
        {"unified": "2764-FE0F", "category": "Smileys & Emotion", "name": "HEART"},
        {"unified": "1F1E9-1F1EA", "category": "Flags", "name": "FLAG"},
    ]
    write(image_tasks.EMOJI_NAMES, json.dumps(names).encode())
    return tmp_path


def labels(task: str, packages: Path) -> list[str]:
    return [picture.label for picture in TASKS[task].read(packages)]


def test_each_package_is_read_as_it_is(packages: Path) -> None:
    """Labels would belong to other images."""
    (digit,) = TASKS["digits"].read(packages)
    assert (digit.label, digit.open().getextrema()) == ("7", (9, 9))
    assert labels("cells", packages) == [
        "defective, monocrystalline",
        "intact, monocrystalline",
        "defective, polycrystalline",
    ]
    assert next(TASKS["cells"].read(packages)).open().getpixel((0, 0)) == (50, 50, 50)
    assert labels("textiles", packages) == ["a local defect"]
    assert labels("climates", packages) == ["tropical", "polar"]
    (tile,) = TASKS["continents"].read(packages)
    assert (tile.label, tile.open().size) == ("Africa", (5, 5))
    assert tile.open().getpixel((2, 2))[1] > 100  # type: ignore[index]
    assert labels("emoji", packages) == ["faces and emotions"] * 2
    assert Counter(labels("scripts", packages))["Hebrew"] > 20


def test_a_group_is_in_one_split_and_classes_take_turns() -> None:
    """Test accuracy would count pictures that are nearly those of the training, or one class only."""
    every = [Picture(f"{number // 5}", "ab"[number % 4 == 0], Image.Image) for number in range(400)]
    splits = {name: split_of(every, ("a", "b"), name, COUNTS, 0) for name in COUNTS}
    groups = [{picture.group for picture in split} for split in splits.values()]
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
    assert {name: len(split) for name, split in splits.items()} == COUNTS
    assert Counter(picture.label for picture in splits["test"]) == {"a": 10, "b": 10}


def test_missing_and_changed_packages_are_named(packages: Path) -> None:
    """A table would be of other images than the published one, or a traceback not say how to get them."""
    recipe = CATALOGUE.recipe({}, MODEL, "digits", "test", Path())
    out = ExamplesFile(packages / "out", {}, say=lambda line: None)
    with pytest.raises(TallmasksError, match=r"mnist_5k\.csv\.gz: found sha256 .*make real-images"):
        CATALOGUE.write(recipe.params, {}, out)
    (packages / image_tasks.DIGITS).unlink()
    assert "make real-images" in str(CATALOGUE.missing(recipe.params))


def message(fields: Iterable[tuple[int, bytes | int]]) -> bytes:
    """In the wire format of protocol buffers."""

    def varint(value: int) -> bytes:
        return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])

    return b"".join(
        varint(number << 3) + varint(value)
        if isinstance(value, int)
        else varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields
    )


def test_dinov2_is_read_from_an_onnx_file(tmp_path: Path) -> None:
    """The encoder would have other weights than the published one, such as a matrix that is not transposed."""
    rng = np.random.default_rng(0)
    stored = {
        "backbone.layernorm.bias": rng.random(200).astype("<f4"),
        "decoder.bias": rng.random(3).astype("<f4"),
        "onnx::MatMul_1": rng.random((2, 300)).astype("<f4"),
        "onnx::Concat_1957": rng.random((1, 1, 3)).astype("<f4"),
        "onnx::Reshape_1962": rng.random((1, 4, 3)).astype("<f4"),
    }
    initializers = [
        (5, message([*((1, size) for size in values.shape), (2, 1), (8, name.encode()), (9, values.tobytes())]))
        for name, values in stored.items()
    ]
    node = message(
        [(1, b"/x"), (1, b"onnx::MatMul_1"), (3, b"/backbone/encoder/layer.0/mlp/fc1/MatMul"), (4, b"MatMul")]
    )
    file = tmp_path / "model.onnx"
    file.write_bytes(message([(1, 8), (7, message([(1, node), *initializers]))]))
    found = encoder.dinov2(file)
    assert set(found) == {
        "layernorm.bias", "encoder.layer.0.mlp.fc1.weight", "embeddings.position_embeddings", "embeddings.mask_token",
    }  # fmt: skip
    assert np.array_equal(found["encoder.layer.0.mlp.fc1.weight"], stored["onnx::MatMul_1"].T)
    assert found["embeddings.position_embeddings"].shape == (1, 5, 3)
    assert np.array_equal(found["layernorm.bias"], stored["backbone.layernorm.bias"])
