"""From a dataset's files to its images and labels, whatever of four layouts they lie in.

Parquet as the hub has it (an image is a struct of bytes and path, or bytes, or a path), WebDataset tars, gzipped IDX
files, and one folder per class.  Images come out as they are stored, in the order of the files; labels as integers in
the order of the task's classes.
"""

from __future__ import annotations

import fnmatch
import glob
import gzip
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError
from tallmasks.tasks.vision.vision_tasks import VisionTask

Encoded = bytes | Path | NDArray[np.uint8]


@dataclass(frozen=True)
class Files:
    """The files of one of a dataset's own splits ("train" or "test"), and where they are from.

    Attributes:
        paths: Files, or the one folder that has a folder per class.
        origin: The dataset repository, or the local folder.
        revision: The commit that the hub resolved to; None for a local folder.
    """

    paths: tuple[Path, ...]
    origin: str
    revision: str | None


@dataclass(frozen=True)
class Dataset:
    """One split as it lies on disk.

    Attributes:
        labels: int64 [N].
        images: Goes through the images from the first: what to call each in a message, and its content.
        notes: What a user should know about the files.
    """

    labels: NDArray[np.int64]
    images: Callable[[], Iterator[tuple[str, Encoded]]]
    notes: tuple[str, ...] = ()


def locate(task: VisionTask, split: str, folder: Path | None = None) -> Files:
    """Find a split's files in a local folder, in this machine's hub cache or on the hub, which then is downloaded.

    Args:
        task: The task.
        split: "train" or "test", of the dataset itself.
        folder: A local folder instead of the hub: a copy of the hub's repository, Parquet files named after the
            splits, or <split>/<class>/<image>.

    Raises:
        TallmasksError: The files are not there, not all there, or cannot be downloaded.
    """
    pattern = task.source.files[split]
    if folder is not None:
        paths = _in_folder(task, split, pattern, folder)
        _refuse_part(task, split, str(folder), [path.name for path in paths])
        return Files(paths, str(folder), None)
    repository, revision = task.source.hub, task.source.revision or "main"
    paths = _cached(repository, revision, pattern)
    if not paths:
        names = _listing(task, revision)
        matching = sorted(fnmatch.filter(names, pattern), key=_natural)
        if not matching:
            raise TallmasksError(
                f"{hub.address(repository, pattern, revision, 'dataset')}: no such files; the repository has "
                f"{', '.join(sorted(names)[:10])}. {_point_to_folder(task.name)}"
            )
        _refuse_part(task, split, hub.address(repository, pattern, revision, "dataset"), matching)
        paths = tuple(hub.download(repository, name, revision, "dataset") for name in matching)
    return Files(paths, f"huggingface.co/datasets/{repository}", hub.commit_of(paths[0]))


def missing(task: VisionTask) -> str | None:
    """What to say if the hub would have to be asked for a task's files and does not answer; None if all is well."""
    revision = task.source.revision or "main"
    if all(_cached(task.source.hub, revision, pattern) for pattern in task.source.files.values()) or hub.reachable():
        return None
    patterns = " ".join(f"--include '{pattern}'" for pattern in task.source.files.values())
    return (
        f"{task.name}: huggingface.co/datasets/{task.source.hub} at {revision} is not in this machine's hub cache, and "
        f"the hub does not answer. Run `hf download {task.source.hub} --repo-type dataset --revision {revision} "
        f"{patterns}` where there is a network and copy the cache here (HF_HOME says where it lies). "
        f"{_point_to_folder(task.name)}"
    )


def _point_to_folder(task: str) -> str:
    return (
        f"Or have a local folder of Parquet files or of one folder per class, and name it as data.{task}.path in "
        "params.yaml."
    )


def _cached(repository: str, revision: str, pattern: str) -> tuple[Path, ...]:
    """The files in the hub cache if all shards are there, else nothing; touches no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return ()
    paths = tuple(sorted(folder.glob(pattern), key=_natural))
    names = [path.name for path in paths]
    if not all(_SHARD.search(name) for name in names):  # nothing says how many there should be
        return () if hub.reachable() else paths
    return () if _lacking(names) else paths


_SHARD = re.compile(r"(?<!\d)(\d+)[-_.]of[-_.](\d+)(?!\d)")
"""Which shard of how many a file's name says it is: `train-00000-of-00013.parquet`, with a hash behind that too."""


def _lacking(names: Sequence[str]) -> str | None:
    """What is not there, or not as it should be, of shards that say in their names how many they are."""
    found = [(name, shard) for name in names if (shard := _SHARD.search(name))]
    if not found:
        return None
    totals = sorted({int(shard[2]) for _, shard in found})
    if len(totals) > 1 or len(found) < len(names):
        odd = next((name for name in names if not _SHARD.search(name)), found[-1][0])
        return f"{found[0][0]} and {odd} are not of one set"
    by_number = Counter(int(shard[1]) for _, shard in found)
    if twice := [number for number, count in sorted(by_number.items()) if count > 1]:
        both = [name for name, shard in found if int(shard[1]) == twice[0]]
        return f"{' and '.join(both[:2])} are the same shard"
    first = 0 if 0 in by_number or totals[0] not in by_number else 1  # some count from 1
    lacking = sorted(set(range(first, first + totals[0])) - by_number.keys())
    if not lacking:
        return None
    return f"{len(found)} of {totals[0]} shards are there; missing: {', '.join(map(str, lacking[:10]))}"


def _refuse_part(task: VisionTask, split: str, where: str, names: Sequence[str]) -> None:
    """Refuse some shards of a split, which would pass for a smaller dataset."""
    if lacking := _lacking(names):
        raise TallmasksError(
            f"{where}: {task.name}: {lacking}. Expected every shard of {split} once: get the data again, or remove "
            "what is of another set"
        )


def _listing(task: VisionTask, revision: str) -> list[str]:
    """The names of the files in a task's dataset repository."""
    from huggingface_hub import HfApi

    if not hub.reachable():
        raise TallmasksError(missing(task) or f"{task.name}: the hub does not answer")
    try:
        found = HfApi().dataset_info(task.source.hub, revision=revision, timeout=30)
    except Exception as error:  # not there, moved, gated, or the connection broke: each has its own type
        raise TallmasksError(
            f"{task.name}: huggingface.co/datasets/{task.source.hub} at {revision} cannot be read: {error} "
            f"{_point_to_folder(task.name)}"
        ) from None
    return [sibling.rfilename for sibling in found.siblings or ()]


def _in_folder(task: VisionTask, split: str, pattern: str, folder: Path) -> tuple[Path, ...]:
    """The files of a split in a local folder."""
    own_name = PurePosixPath(pattern).name.split("-")[0]  # Food101's test split is called validation
    for candidate in (pattern, f"**/{own_name}*.parquet", f"**/{own_name}/*.parquet", f"**/{split}*.parquet"):
        if paths := tuple(sorted((path for path in folder.glob(candidate) if not _hidden(path, folder)), key=_natural)):
            return paths
    if (folder / split).is_dir():
        return (folder / split,)
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) if folder.is_dir() else "no such folder"
    raise TallmasksError(
        f"{folder}: no {split} data of {task.name} (found: {found or 'nothing'}); data.{task.name}.path in params.yaml "
        f"names it. Expected {pattern} as on the hub, {split}*.parquet, or {split}/<class>/<image>."
    )


def open_dataset(task: VisionTask, files: Files) -> Dataset:
    """Read the labels of a split and make its images ready to be read.

    Raises:
        TallmasksError: A column is missing, a label is none of the task's, or a file is damaged.
    """
    first = files.paths[0]
    opened: Dataset
    try:
        if first.is_dir():
            opened = _open_folder(task, first)
        elif layout := {".parquet": "parquet", ".tar": "webdataset"}.get(first.suffix):
            opened = _open_streamed(task, layout, files.paths)
        else:
            opened = _open_idx(files.paths)
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:  # Arrow's errors are ValueErrors or OSErrors
        raise TallmasksError(
            f"{files.origin}: {task.name}: a data file is damaged or of another layout ({error}). Expected Parquet, "
            "WebDataset tars, gzipped IDX files or a folder per class; delete it and get it again."
        ) from error
    wrong = np.flatnonzero((opened.labels < 0) | (opened.labels >= len(task.classes)))
    if len(wrong):
        raise TallmasksError(
            f"{files.origin}: {task.name}: example {wrong[0]} has label {opened.labels[wrong[0]]} ({len(wrong)} such "
            f"labels in all), expected 0 to {len(task.classes) - 1}; these are not this task's data"
        )
    return opened


# -- labels ---------------------------------------------------------------------------------------------------


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def label_named(task: VisionTask, name: str) -> int | None:
    """The label of a class by its name, an alias or its number, spelling aside; None if it is none of them."""
    for label, known in [*enumerate(task.classes), *task.aliases.items()]:
        if _plain(known) == _plain(name):
            return label
    return int(name) if name.isdecimal() and int(name) < len(task.classes) else None


def _order_of(task: VisionTask, names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """For every label of the files, the task's label [C]; and what to note.

    Names that say nothing ("0", "1", ...) and names that are spelled too differently keep their place, unless the
    names that are recognised show that the order is another.

    Raises:
        TallmasksError: There are more or fewer names than classes, or the order cannot be told.
    """
    if len(names) != len(task.classes):
        raise TallmasksError(
            f"{task.name}: the files have {len(names)} classes ({', '.join(names[:5])}, ...), expected "
            f"{len(task.classes)}; these are not this task's data"
        )
    found = [label_named(task, name) for name in names]
    unknown = [index for index, label in enumerate(found) if label is None]
    order = np.array([index if label is None else label for index, label in enumerate(found)])
    moved = bool((order != np.arange(len(names))).any())
    if len(set(order.tolist())) < len(names) or (moved and unknown):
        raise TallmasksError(
            f"{task.name}: the files' classes cannot be told apart: "
            + ", ".join(f"{index} is {names[index]!r}" for index in unknown[:5] or range(5))
            + f"; expected the names {', '.join(task.classes[:5])}, ..."
        )
    notes = [f"class {i} is called {names[i]!r} in the files, {task.classes[i]!r} was expected" for i in unknown]
    if moved:
        notes.append("the files number the classes in another order; labels were matched by name")
    return order, tuple(notes)


# -- layouts --------------------------------------------------------------------------------------------------


def _open_streamed(task: VisionTask, layout: str, paths: Sequence[Path]) -> Dataset:
    """Parquet or WebDataset tars, through the datasets library; nothing is copied into its cache."""
    from datasets import ClassLabel, Image, IterableDataset, config, load_dataset

    config.HF_UPDATE_DOWNLOAD_COUNTS = False  # it would tell the hub of every call, and wait where there is none

    def rows(**options: Any) -> IterableDataset:
        files = [glob.escape(str(path)) for path in paths]  # load_dataset takes patterns
        return load_dataset(layout, data_files=files, split="train", streaming=True, **options)

    columns = rows().features
    typed = [name for name, feature in columns.items() if isinstance(feature, Image)]
    image = next((name for name in (task.source.image, "image", *typed) if name in columns), None)
    label = next((name for name in (task.source.label, "label", "cls") if name in columns), None)
    if image is None or label is None:
        absent = [name for name, found in ((task.source.image, image), (task.source.label, label)) if found is None]
        raise TallmasksError(
            f"{paths[0]}: {task.name}: no column {' or '.join(absent)}; found {', '.join(columns)}. Local files may "
            "call them image and label."
        )

    def column(name: str) -> IterableDataset:
        return rows(columns=[name]) if layout == "parquet" else rows()

    found = [row[label] for row in column(label)]
    if None in found:
        raise TallmasksError(
            f"{task.name}: example {found.index(None)} has no label ({found.count(None)} in all have none)"
        )
    notes: tuple[str, ...] = ()
    if any(isinstance(value, str) for value in found):
        labels = _labels_of_names(task, found)
    else:
        labels = np.asarray(found, np.int64)
        if isinstance(columns[label], ClassLabel):
            order, notes = _order_of(task, columns[label].names)
            inside = (labels >= 0) & (labels < len(order))
            labels = np.where(inside, order[np.where(inside, labels, 0)], labels)

    def images() -> Iterator[tuple[str, Encoded]]:
        for index, row in enumerate(column(image).cast_column(image, Image(decode=False))):
            stored = row[image] or {"bytes": None, "path": None}
            name = f"example {index}" + (f" ({stored['path']})" if stored["path"] else "")
            where = paths[0].parent / stored["path"] if stored["path"] else b""  # nothing: it cannot be decoded
            yield name, stored["bytes"] or where

    return Dataset(labels, images, notes)


def _labels_of_names(task: VisionTask, names: Sequence[str]) -> NDArray[np.int64]:
    label_of = {name: label_named(task, name) for name in dict.fromkeys(names)}
    if unknown := [name for name, label in label_of.items() if label is None]:
        raise TallmasksError(
            f"{task.name}: unknown class {unknown[0]!r} ({len(unknown)} in all); expected {len(task.classes)} classes: "
            f"{', '.join(task.classes[:10])}{', ...' if len(task.classes) > 10 else ''}"
        )
    return np.array([label_of[name] for name in names], np.int64)


def _open_folder(task: VisionTask, folder: Path) -> Dataset:
    """One folder per class, as torchvision reads it, without hidden files: classes by name, then images by name."""
    from torchvision.datasets import ImageFolder

    found = ImageFolder(str(folder), allow_empty=True)
    label_of = _labels_of_names(task, found.classes)
    samples = [(Path(path), label) for path, label in found.samples if not _hidden(Path(path), folder)]
    labels = label_of[[label for _, label in samples]]
    return Dataset(labels, lambda: ((str(path.relative_to(folder)), path) for path, _ in samples))


def _hidden(path: Path, folder: Path) -> bool:
    """Whether a file's name, or that of a folder on the way to it, begins with a dot: such are no part of the digest
    that stands for a local folder (`tallmasks.store.source_digests`)."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _open_idx(paths: Sequence[Path]) -> Dataset:
    images_file, labels_file = sorted(paths, key=lambda path: "labels" in path.name)
    pixels, labels = _read_idx(images_file), _read_idx(labels_file)
    if pixels.ndim != 3 or labels.ndim != 1 or len(pixels) != len(labels):
        raise ValueError(f"{images_file.name} has {pixels.shape}, {labels_file.name} {labels.shape}")

    def images() -> Iterator[tuple[str, Encoded]]:
        for row, image in enumerate(pixels):
            yield f"{images_file.name} row {row}", image

    return Dataset(labels.astype(np.int64), images)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """A gzipped IDX file of unsigned bytes: two zeros, the type 8, the dimensions and their sizes, the values."""
    with gzip.open(path) as file:
        content = file.read()
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path.name} is not an IDX file of unsigned bytes")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _natural(name: str | Path) -> list[str | int]:
    """Sort key with numbers by their value: 2.tar before 10.tar."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(name))]
