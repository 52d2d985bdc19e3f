"""The 20 datasets in small, as their files are on the hub: names, columns, types, image formats and modes.

What is not in a dataset's card (which images are grey, have a palette or an alpha channel) is put where it does occur
in that kind of data: photographs from the web.
"""

import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features
from datasets import Image as ImageFeature
from PIL import Image

from reproduction.tasks.vision import TASKS

WEB = ("RGB", "RGB", "L", "RGB", "RGBA", "P", "LA", "CMYK")
DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Schema:
    """How one dataset's files look.

    Attributes:
        side: Of all images; None where they have sizes of their own.
        modes: Pillow modes that occur.
        format: Of the images.
        names: The names in the ClassLabel; None for the task's own, () where the label is a plain number.
        label_type: Arrow type of the labels.
    """

    side: int | None = None
    modes: Sequence[str] = ("RGB",)
    format: str = "PNG"
    names: Sequence[str] | None = None
    label_type: pa.DataType = field(default_factory=pa.int64)


SCHEMAS = {
    "cars": Schema(modes=WEB[:3], format="JPEG"),
    "dtd": Schema(format="JPEG"),
    "eurosat": Schema(side=64, format="JPEG"),
    "gtsrb": Schema(),
    "mnist": Schema(side=28, modes=("L",), names=DIGITS),
    "resisc45": Schema(side=256, format="JPEG"),
    "sun397": Schema(modes=WEB),
    "svhn": Schema(side=32, names=DIGITS),
    "cifar100": Schema(side=32, names=tuple("cra" if name == "crab" else name for name in TASKS["cifar100"].classes)),
    "stl10": Schema(side=96),
    "flowers102": Schema(
        format="JPEG",
        names=tuple(TASKS["flowers102"].aliases.get(i, name) for i, name in enumerate(TASKS["flowers102"].classes)),
    ),
    "oxfordiiitpet": Schema(
        modes=("RGB", "P", "RGBA"),
        names=tuple(name.lower().replace(" ", "_") for name in TASKS["oxfordiiitpet"].classes),
    ),
    "pcam": Schema(side=96, names=(), label_type=pa.bool_()),
    "fer2013": Schema(side=48, modes=("L",), format="JPEG"),
    "emnist": Schema(side=28, modes=("L",)),
    "cifar10": Schema(side=32),
    "food101": Schema(format="JPEG"),
    "fashionmnist": Schema(side=28, modes=("L",), names=("T - shirt / top", *TASKS["fashionmnist"].classes[1:])),
    "renderedsst2": Schema(side=448),
    "kmnist": Schema(side=28, modes=("L",), names=tuple("おきすつなはまやれを")),
}


def cached_repository(cache: Path, name: str, commit: str = "") -> Path:
    """Where the hub cache keeps a commit of a task's dataset, the pinned one if none is named."""
    source = TASKS[name].source
    return cache / f"datasets--{source.hub.replace('/', '--')}" / "snapshots" / (commit or str(source.revision))


RNG = np.random.default_rng(0)  # tests/reproduction/vision/conftest.py starts it anew for each test


def picture(rng: np.random.Generator, width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A smooth random image, so that resizing it says something."""
    coarse = rng.integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    if mode in ("RGBA", "LA"):
        image.putalpha(128)
    return image.convert(mode)


def encoded(image: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    if format == "JPEG" and image.mode not in ("RGB", "L", "CMYK"):
        format = "PNG"
    image.save(buffer, "TIFF" if image.mode == "CMYK" else format)
    return buffer.getvalue()


def images_and_labels(
    name: str, count: int, seed: int, classes: int | None = None
) -> tuple[list[Image.Image], list[int]]:
    """Images in the sizes and modes of a dataset, and labels of all over its range, or of its first classes."""
    schema, rng = SCHEMAS[name], np.random.default_rng(seed)
    classes = classes or len(TASKS[name].classes)
    images = []
    for index in range(count):
        width, height = (schema.side, schema.side) if schema.side else rng.integers(20, 400, 2)
        images.append(picture(rng, int(width), int(height), schema.modes[index % len(schema.modes)]))
    return images, rng.integers(0, classes, count).tolist()


def write_parquet(
    path: Path,
    images: Sequence[object],
    labels: Sequence[object],
    names: Sequence[str] = (),
    image_column: str = "image",
    label_column: str = "label",
    image_type: pa.DataType | None = None,
    label_type: pa.DataType | None = None,
) -> None:
    """A Parquet file as the datasets library writes it, with its features in the metadata."""
    image_type = image_type or pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns = {image_column: pa.array(images, image_type), label_column: pa.array(labels, label_type or pa.int64())}
    table = pa.table(columns | {"more": pa.array(["x"] * len(labels))})
    features = Features.from_arrow_schema(table.schema)
    features[image_column] = ImageFeature()
    if names:
        features[label_column] = ClassLabel(names=list(names))
    table = table.replace_schema_metadata(features.arrow_schema.metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=4)


def write_repository(
    folder: Path, name: str, counts: Mapping[str, int], classes: int | None = None
) -> dict[str, tuple[list[Image.Image], list[int]]]:
    """A dataset's repository in small; returns its images, as they come out of the files, and labels by split."""
    task, schema = TASKS[name], SCHEMAS[name]
    content = {}
    for seed, (split, count) in enumerate(counts.items()):
        images, labels = images_and_labels(name, count, seed, classes)
        stored = [encoded(image, schema.format) for image in images]
        pattern = task.source.files[split]
        if pattern.endswith(".parquet"):
            names = task.classes if schema.names is None else schema.names
            half = count // 2
            for shard, part in enumerate((slice(0, half), slice(half, None))):
                write_parquet(
                    folder / pattern.replace("*", f"{shard:05d}-of-00002"),
                    [{"bytes": one, "path": f"{row}.png"} for row, one in enumerate(stored[part])],
                    [bool(label) for label in labels[part]] if schema.label_type == pa.bool_() else labels[part],
                    names,
                    task.source.image,
                    task.source.label,
                    label_type=schema.label_type,
                )
        elif pattern.endswith(".tar"):
            write_tars(folder, pattern, stored, labels, "jpg" if schema.format == "JPEG" else "png")
        else:
            write_idx(folder, pattern, np.stack([np.asarray(image) for image in images]), labels)
            stored = [encoded(image, "PNG") for image in images]
        content[split] = ([Image.open(io.BytesIO(one)) for one in stored], labels)
    return content


def write_tars(folder: Path, pattern: str, stored: Sequence[bytes], labels: Sequence[int], suffix: str) -> None:
    """WebDataset shards of one image each, so that there are more than ten."""
    for row, (image, label) in enumerate(zip(stored, labels, strict=True)):
        path = folder / pattern.replace("*", str(row))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w") as archive:
            for name, data in ((f"s{row:07d}.cls", str(label).encode()), (f"s{row:07d}.{suffix}", image)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def write_idx(folder: Path, pattern: str, images: np.ndarray, labels: Sequence[int]) -> None:
    """The two gzipped IDX files of a split, under NIST's names."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, values in (("images-idx3", images), ("labels-idx1", np.array(labels, np.uint8))):
        header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        (folder / pattern.replace("*", kind)).write_bytes(gzip.compress(header + values.tobytes()))
