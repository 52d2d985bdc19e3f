"""Finds labelled images: a folder per class, a table of paths and labels, or Parquet files with the images in them."""

from __future__ import annotations

import json
import mimetypes
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.tasks.own_data import FORMATS, read_columns
from reproduction.tasks.task import SPLITS
from tallmasks.errors import TallmasksError, counted, name_some, nearest, short, warn

PART_OF: dict[str, str] = {"val": "validation", "valid": "validation"} | {part: part for part in SPLITS}
METADATA = ("metadata.csv", "metadata.jsonl")
EXPECTED = (
    f"a folder with a folder per class, also below train/, validation/ and test/; or a table, {FORMATS}, with a column "
    "of paths or images and one of labels"
)
_TYPES = mimetypes.MimeTypes()  # Python's own, not the machine's


@dataclass(frozen=True)
class Listing:
    """Labelled images in a fixed order, N of them.

    Attributes:
        names: for messages.
        labels: a class name, or a number.
        parts: the split that the data say; "train" where they say none.
        images: iterates over all images, encoded.
        folder: of the images that a table names; None if they are in the path itself.
        numbers: True if labels that are numbers can mean the model's outputs although these have names.
    """

    names: list[str]
    labels: list[str]
    parts: list[str]
    images: Callable[[], Iterator[bytes | Path]]
    folder: Path | None = None
    numbers: bool = True


def list_images(task: str, path: Path, columns: Mapping[str, str | None]) -> Listing:
    """The images of a file or folder. ``columns``: the names under "image" (None: `image` or `file_name`), "label" and
    "split" (None: no such column).

    Raises TallmasksError if there are none, a label is empty, a file is missing, or a path or link leaves the folder.
    """
    if path.is_dir():
        folders = [path, *(entry for entry in sorted(path.iterdir()) if entry.name.lower() in PART_OF)]
        tables = [table for folder in folders for name in METADATA if (table := folder / name).is_file()]
        if tables:
            listing = _of_tables(task, path, tables, columns)
        elif parquet := [file for file in _files(path, path.resolve()) if file.suffix == ".parquet"]:
            listing = _of_parquet(task, path, parquet, columns)
        else:
            listing = _of_folders(task, path)
    elif not path.is_file():
        raise TallmasksError(f"{path}: no such file or folder; expected {EXPECTED}")
    elif path.suffix == ".parquet" and _holds_images(path, columns["image"]):
        listing = _of_parquet(task, path.parent, [path], columns)
    else:
        listing = _of_tables(task, path.parent, [path], columns)
    if not listing.names:
        raise TallmasksError(f"{path}: found no images; expected {EXPECTED}")
    if "" in listing.labels:
        raise TallmasksError(
            f"{listing.names[listing.labels.index('')]}: the label is empty; add it, or remove the row"
        )
    for name, part in zip(listing.names, listing.parts, strict=True):
        if part not in SPLITS:
            raise TallmasksError(
                f"{path}: {name}, column {columns['split']!r}: found {short(part)}, expected one of {', '.join(SPLITS)}"
            )
    return listing


def _files(folder: Path, top: Path) -> Iterator[Path]:
    """All files below a folder, sorted, without hidden ones.  Raises TallmasksError for links out of ``top``."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        if entry.name.startswith("."):
            continue
        if entry.is_symlink() and (entry.is_dir() or not path.resolve().is_relative_to(top)):
            raise TallmasksError(
                f"{path}: is a link to {path.readlink()}; links to folders and out of {top} are not followed: "
                "replace it by what it leads to"
            )
        if entry.is_dir():
            yield from _files(path, top)
        else:
            yield path


def _of_folders(task: str, path: Path) -> Listing:
    """Images in a folder per class, in the order of class and file name."""
    tops = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    divided = bool(tops) and all(top.name.lower() in PART_OF for top in tops)
    files, others, filled = list[Path](), list[str](), set[Path]()
    for file in _files(path, path.resolve()):
        inner = file.relative_to(path)
        kind = _TYPES.guess_type(file.name)[0]
        in_class, is_image = len(inner.parts) >= 2 + divided, (kind or "").startswith("image/")
        if not is_image and (kind or not in_class):
            others.append(str(inner))
        elif not in_class:
            raise TallmasksError(f"{file}: is in no class's folder; expected {EXPECTED}")
        else:
            files.append(file)
            filled.add(path.joinpath(*inner.parts[: 1 + divided]))
    if others:
        warn(f"{path}: {counted(len(others), 'file')} skipped that are no images: {name_some(others)}", task)
    classes = [
        entry for top in (tops if divided else [path]) for entry in sorted(top.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    ]  # fmt: skip
    if empty := [entry for entry in classes if entry not in filled]:
        raise TallmasksError(f"{empty[0]}: found no images of this class; add some, or remove the folder")
    inners = [file.relative_to(path) for file in files]
    return Listing(
        [str(inner) for inner in inners],
        [inner.parts[divided].strip() for inner in inners],
        [PART_OF[inner.parts[0].lower()] if divided else "train" for inner in inners],
        lambda: iter(files),
        numbers=False,
    )


def _of_tables(task: str, path: Path, tables: Sequence[Path], columns: Mapping[str, str | None]) -> Listing:
    """Images named in tables, by paths that start at the table."""
    image, label, split = columns["image"] or "file_name", str(columns["label"]), columns["split"]
    files, labels, parts = list[Path](), list[str](), list[str]()
    for table in tables:
        values = read_columns(task, table, list(dict.fromkeys([image, label, *([split] if split else [])])))
        if "" in values[image]:
            raise TallmasksError(
                f"{table}: row {values[image].index('') + 1}: the path is empty; add it, or remove the row"
            )
        files += [table.parent / name for name in values[image]]
        labels += [value.strip() for value in values[label]]
        parts += values[split] if split else []
    inners = [_inside(path, file) for file in files]
    if absent := [str(inner) for inner, file in zip(inners, files, strict=True) if not file.is_file()]:
        raise TallmasksError(
            f"{tables[0]}: column {image!r}: {counted(len(absent), 'path')} without a file: {name_some(absent)}; "
            "expected paths that start at the table's folder"
        )
    firsts = [inner.parts[0].lower() for inner in inners]
    if not split:
        parts = [PART_OF[first] for first in firsts] if {*firsts} <= {*PART_OF} else ["train"] * len(files)
    folder = Path(os.path.commonpath([file.parent for file in files])) if files else None
    return Listing([str(inner) for inner in inners], labels, parts, lambda: iter(files), folder)


def _inside(top: Path, file: Path) -> Path:
    """A path relative to ``top``.  Raises TallmasksError if it, or a link on it, leaves that folder."""
    plain = Path(os.path.normpath(file))
    if plain.is_relative_to(top) and file.resolve().is_relative_to(top.resolve()):
        return plain.relative_to(top)
    raise TallmasksError(f"{file}: is not in {top}, where the table is; copy the images there, and correct the path")


def _of_parquet(task: str, path: Path, files: Sequence[Path], columns: Mapping[str, str | None]) -> Listing:
    """Images in Parquet files; the name of a file, such as train-00000-of-00002, can say the split."""
    image, label, split = columns["image"] or "image", str(columns["label"]), columns["split"]
    names, labels, parts = list[str](), list[str](), list[str]()
    for file in files:
        values = read_columns(task, file, list(dict.fromkeys([label, *([split] if split else [])])))
        class_names = _class_names(file, label)
        of_file = [value.strip() for value in values[label]]
        if class_names and (odd := [value for value in of_file if value not in class_names]):
            raise TallmasksError(
                f"{file}: column {label!r}: found {short(odd[0])}, expected 0 to {len(class_names) - 1}"
            )
        names += [f"{file.name} row {row}" for row in range(1, len(of_file) + 1)]
        labels += [class_names.get(value, value) for value in of_file]
        parts += values[split] if split else [PART_OF.get(re.split(r"[-_.]", file.stem.lower())[0], "")] * len(of_file)
        if not _holds_images(file, image):
            found = _schema(file).names
            raise TallmasksError(
                f"{file}: found no column {image!r} with images{nearest(image, found)}; found {', '.join(found[:20])}; "
                "expected their content as `bytes`, or name the column"
            )
    if not split and "" in parts:
        parts = ["train"] * len(parts)

    def images() -> Iterator[bytes | Path]:
        from pyarrow import parquet

        for file in files:
            for batch in parquet.ParquetFile(file).iter_batches(16, columns=[image]):
                for value in batch.column(0).to_pylist():
                    content = value.get("bytes") if isinstance(value, dict) else value
                    yield content or b""  # which is reported as undecodable

    return Listing(names, labels, parts, images)


def _schema(file: Path) -> Any:
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file).schema_arrow
    except (OSError, ValueError) as error:
        raise TallmasksError(f"{file}: cannot be read as .parquet: {error}; expected {EXPECTED}") from None


def _holds_images(file: Path, image: str | None) -> bool:
    from pyarrow import types

    schema = _schema(file)
    index = schema.get_field_index(image or "image")
    kind = schema.field(index).type if index >= 0 else None
    if kind is not None and types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return kind is not None and (types.is_binary(kind) or types.is_large_binary(kind))


def _class_names(file: Path, label: str) -> dict[str, str]:
    """The class names by number, where the datasets library has stored them in the file."""
    try:
        stored = json.loads((_schema(file).metadata or {}).get(b"huggingface", b"{}"))
        names = stored["info"]["features"][label]["names"]
        return {str(number): str(name).strip() for number, name in enumerate(names)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
