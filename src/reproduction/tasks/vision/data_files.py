"""Reads images and labels from Parquet files, WebDataset tars, gzipped IDX files, or one folder per class.

Images stay encoded and in file order.  Labels index the task's classes.
"""

from __future__ import annotations

import glob
import gzip
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.tasks.dataset_files import Files, from_folder, from_hub, hidden, reading
from reproduction.tasks.vision.vision_tasks import LOCAL, VisionTask
from tallmasks.errors import TallmasksError, short

Encoded = bytes | Path | NDArray[np.uint8]
_LAYOUTS = "Parquet files, WebDataset tars, gzipped IDX files or a folder per class"


@dataclass(frozen=True)
class Dataset:
    """One split: labels int64 [N], and warnings for the user.

    ``images()`` iterates over all images, as a name for messages and the encoded content.
    """

    labels: NDArray[np.int64]
    images: Callable[[], Iterator[tuple[str, Encoded]]]
    notes: tuple[str, ...] = ()


def files_of(task: VisionTask, split: str, folder: Path | None = None) -> Files:
    """The files of the published split "train" or "test", from the hub cache, the hub or a local `folder`.

    The folder is a copy of the hub's repository, or holds Parquet files named after the splits, or
    <split>/<class>/<image>.  Raises TallmasksError if files are unavailable or incomplete.
    """
    if folder is None:
        return from_hub(task.name, task.source, split, LOCAL)
    pattern = task.source.files[split]
    own_name = PurePosixPath(pattern).name.split("-")[0]  # Food101's test split is called validation
    parquet = (f"**/{own_name}*.parquet", f"**/{own_name}/*.parquet", f"**/{split}*.parquet")
    has_classes = any(inner.is_dir() and not hidden(inner, folder) for inner in folder.glob(f"{split}/*"))
    patterns = (pattern, *((f"{split}/", *parquet) if has_classes else (*parquet, f"{split}/")))
    expected = f"{pattern} as on the hub, {split}*.parquet, or {split}/<class>/<image>"
    return from_folder(task.name, split, folder, patterns, expected)


def open_dataset(task: VisionTask, files: Files) -> Dataset:
    """Open a split.  Raises TallmasksError if a column is missing, a label is out of range, or a file is damaged."""
    first = files.paths[0]
    opened: Dataset
    with reading(task.name, first, _LAYOUTS):
        if first.is_dir():
            opened = _open_folder(task, first)
        elif layout := {".parquet": "parquet", ".tar": "webdataset"}.get(first.suffix):
            opened = _open_streamed(task, layout, files.paths)
        else:
            opened = _open_idx(task, files.paths)
    wrong = np.flatnonzero((opened.labels < 0) | (opened.labels >= len(task.classes)))
    if len(wrong):
        raise TallmasksError(
            f"{files.origin}: {task.name}: example {wrong[0]} has label {opened.labels[wrong[0]]} ({len(wrong)} such "
            f"labels in total), expected 0 to {len(task.classes) - 1}; these are not this task's data"
        )
    return opened


def plain_name(name: str) -> str:
    """Without what spellings differ in. Signs, decimal points and accents are kept, and those of `C++` and `C#`."""
    plain = re.sub(r"(?!^-\d)(?!(?<=\d)[.,]\d)[\s\-_.,;:'’\"()/&]", "", unicodedata.normalize("NFC", name))
    return unicodedata.normalize("NFC", plain.casefold())


def label_named(task: VisionTask, name: str) -> int | None:
    """The label for a class name, alias or number, or None.  Case, spaces and punctuation are ignored, unless that
    leaves several classes; numbers count as labels if no class is called like a number."""
    spellings = [*enumerate(task.classes), *task.aliases.items()]
    exact = {label for label, spelling in spellings if spelling == name}
    similar = exact or {label for label, spelling in spellings if plain_name(spelling) == plain_name(name)}
    if len(similar) == 1:
        return similar.pop()
    are_labels = not any(one.isdecimal() for one in task.classes)
    return int(name) if are_labels and name.isdecimal() and int(name) < len(task.classes) else None


def _order_of(task: VisionTask, names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Map the files' labels to the task's labels, int64 [C]; also returns warnings for the user.

    Unrecognised names keep their index if all recognised ones do.  Otherwise, or if the number of names is wrong or
    none is recognised, raises TallmasksError.
    """
    recognised = [label_named(task, name) for name in names]
    if len(names) != len(task.classes) or set(recognised) == {None}:
        raise TallmasksError(
            f"{task.name}: the files have {len(names)} classes ({', '.join(names[:5])}, ...), expected "
            f"{len(task.classes)} ({', '.join(task.classes[:5])}, ...); these are not this task's data"
        )
    unknown = [index for index, label in enumerate(recognised) if label is None]
    order = np.array([index if label is None else label for index, label in enumerate(recognised)])
    moved = bool((order != np.arange(len(names))).any())
    if len(set(order.tolist())) < len(names) or (moved and unknown):
        raise TallmasksError(
            f"{task.name}: cannot match the files' classes to the task's: "
            + ", ".join(f"{index} is {names[index]!r}" for index in unknown[:5] or range(5))
            + f"; expected the names {', '.join(task.classes[:5])}, ..."
        )
    notes = [f"class {i} is called {names[i]!r} in the files, {task.classes[i]!r} was expected" for i in unknown]
    if moved:
        notes.append("the files number the classes in another order; labels were matched by name")
    return order, tuple(notes)


def _open_streamed(task: VisionTask, layout: str, paths: Sequence[Path]) -> Dataset:
    """Open Parquet files or WebDataset tars in streaming mode, so that nothing is copied into the datasets cache."""
    from datasets import ClassLabel, Image, IterableDataset, config, load_dataset

    config.HF_UPDATE_DOWNLOAD_COUNTS = False  # otherwise every call contacts the hub, and waits when offline

    def rows(path: Path, **options: Any) -> IterableDataset:
        file = glob.escape(str(path))  # load_dataset expands patterns
        return load_dataset(layout, data_files=file, split="train", streaming=True, **options)

    columns = rows(paths[0]).features
    typed = [name for name, feature in columns.items() if isinstance(feature, Image)]
    image = next((name for name in (task.source.image, "image", *typed) if name in columns), None)
    label = next((name for name in (task.source.label, "label", "cls") if name in columns), None)
    if image is None or label is None:
        absent = [name for name, column in ((task.source.image, image), (task.source.label, label)) if column is None]
        raise TallmasksError(
            f"{paths[0]}: {task.name}: no column {' or '.join(absent)}; found {', '.join(columns)}. In local files the "
            "columns can also be called image and label."
        )

    columns[image] = Image(decode=False)

    def values(name: str) -> Iterator[Any]:
        only = {"columns": [name]} if layout == "parquet" else {}
        for path in paths:
            with reading(task.name, path, _LAYOUTS):
                yield from (row[name] for row in rows(path, features=columns, **only))

    stored_labels = list(values(label))
    if None in stored_labels:
        raise TallmasksError(
            f"{task.name}: example {stored_labels.index(None)} has no label ({stored_labels.count(None)} in total)"
        )
    notes: tuple[str, ...] = ()
    if any(isinstance(value, str) for value in stored_labels):
        labels = _labels_of_names(task, stored_labels)
    else:
        if odd := [value for value in stored_labels if not _is_whole(value)]:
            raise TallmasksError(
                f"{paths[0]}: {task.name}: column {label}: found {short(odd[0])}, expected a whole number or a class "
                "name for each image"
            )
        labels = np.asarray(stored_labels, np.int64)
        if isinstance(columns[label], ClassLabel):
            order, notes = _order_of(task, columns[label].names)
            inside = (labels >= 0) & (labels < len(order))
            labels = np.where(inside, order[np.where(inside, labels, 0)], labels)

    def images() -> Iterator[tuple[str, Encoded]]:
        for index, value in enumerate(values(image)):
            stored = value or {"bytes": None, "path": None}
            name = f"example {index}" + (f" ({stored['path']})" if stored["path"] else "")
            yield name, stored["bytes"] or b""  # which is reported as undecodable

    return Dataset(labels, images, notes)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and float(value).is_integer()


def _labels_of_names(task: VisionTask, names: Sequence[str]) -> NDArray[np.int64]:
    label_of = {name: label_named(task, name) for name in dict.fromkeys(names)}
    if unknown := [name for name, label in label_of.items() if label is None]:
        raise TallmasksError(
            f"{task.name}: unknown class {unknown[0]!r} ({len(unknown)} in total), expected {len(task.classes)}: "
            f"{', '.join(task.classes[:10])}{', ...' if len(task.classes) > 10 else ''}"
        )
    for name, label in label_of.items():
        if other := next((other for other in label_of if other != name and label_of[other] == label), None):
            raise TallmasksError(
                f"{task.name}: {name!r} and {other!r} are both taken for the class {task.classes[label or 0]!r}; give "
                "all images of a class the same name"
            )
    return np.array([label_of[name] for name in names], np.int64)


def _open_folder(task: VisionTask, folder: Path) -> Dataset:
    """Open one folder per class, in torchvision's order (class, then file name), without hidden files."""
    from PIL import Image
    from torchvision.datasets import ImageFolder

    known = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    images = ImageFolder(str(folder), is_valid_file=lambda path: Path(path).suffix.lower() in known, allow_empty=True)
    samples = [(Path(path), images.classes[label]) for path, label in images.samples if not hidden(Path(path), folder)]
    labels = _labels_of_names(task, [name for _, name in samples])
    return Dataset(labels, lambda: ((str(path.relative_to(folder)), path) for path, _ in samples))


def _open_idx(task: VisionTask, paths: Sequence[Path]) -> Dataset:
    images_file, labels_file = sorted(paths, key=lambda path: "labels" in path.name)
    pixels, labels = _read_idx(task, images_file), _read_idx(task, labels_file)
    if pixels.ndim != 3 or labels.ndim != 1 or len(pixels) != len(labels):
        raise ValueError(f"{images_file.name} has {pixels.shape}, {labels_file.name} {labels.shape}")

    def images() -> Iterator[tuple[str, Encoded]]:
        for row, image in enumerate(pixels):
            yield f"{images_file.name} row {row}", image

    return Dataset(labels.astype(np.int64), images)


def _read_idx(task: VisionTask, path: Path) -> NDArray[np.uint8]:
    """A gzipped IDX file of unsigned bytes: 0, 0, type 8, number of dimensions, their sizes, the values."""
    with reading(task.name, path, _LAYOUTS), gzip.open(path) as file:
        content = file.read()
        if content[:3] != b"\0\0\x08":
            raise ValueError("it is not an IDX file of unsigned bytes")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)
