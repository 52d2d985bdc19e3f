"""Your own labelled images: a folder with a folder per class, a table of paths, or Parquet files.

params.yaml declares them under `data`: `leaves: {images: ./leaves}`.  `image_listings.py` describes what can be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from reproduction.tasks.catalogues import Params
from reproduction.tasks.own_data import FRACTIONS, check_splits, divided, hash_order, label_order, repeated
from reproduction.tasks.task import Task
from reproduction.tasks.vision.data_files import plain_name
from reproduction.tasks.vision.decoding import LARGEST_UNDECODABLE
from reproduction.tasks.vision.image_listings import Listing, list_images
from reproduction.tasks.vision.untrusted_images import Undecodable, decoded, pixel_hash
from tallmasks.errors import TallmasksError, counted, short
from tallmasks.io.file_digests import named_path
from tallmasks.parallel import parallel

_CHUNK = 64  # images that threads decode together
Say = Callable[[str], None]


@dataclass(frozen=True)
class OwnImageTask(Task):
    """A task of `data` in params.yaml.

    Attributes:
        sources: the folder or file with the data, and the folder of images that a file names.
        settings: what determines the examples, besides the data: the names of columns, the classes, the class number
            of every label, and how the images are divided.
    """

    sources: Mapping[str, Path]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class OwnImages:
    """Decoded images of one split, M of them: labels int64 [M]; ``images()`` iterates over them in RGB."""

    labels: NDArray[np.int64]
    images: Callable[[], Iterator[Image.Image]]


def own_image_tasks(params: Params) -> dict[str, OwnImageTask]:
    """The tasks of `data` with images.

    Raises TallmasksError if the data are missing or have another layout, or a class is unknown, empty or too small.
    """
    entries = {name: entry for name, entry in params.get("data", {}).items() if "images" in entry}
    return {name: own_image_task(name, entry) for name, entry in entries.items()}


def own_image_task(name: str, entry: Mapping[str, Any], *, table: bool = True) -> OwnImageTask:
    """One task. ``table``: every class must have images in every split."""
    columns = {"image": entry.get("image"), "label": entry.get("label", "label"), "split": entry.get("split")}
    path = named_path(Path(), entry["images"])
    listing = list_images(name, path, columns)
    labels = sorted({*listing.labels}, key=label_order)
    if table and len(labels) < 2:
        raise TallmasksError(f"{path}: found one class, {short(labels[0])}, expected at least two")
    classes = entry.get("classes", labels)
    number_of = _numbers(path, labels, classes, numbers=listing.numbers)
    settings = {
        "columns": columns,
        "classes": list(classes),
        "labels": number_of,
        "fractions": {**FRACTIONS, **entry.get("fractions", {})},
        "seed": entry.get("seed", 0),
        "edition": 1,  # raise it when the same data and settings give other examples
    }
    if table:
        if absent := [one for number, one in enumerate(classes) if number not in number_of.values()]:
            raise TallmasksError(
                f"{path}: found no images of the class {short(absent[0])}; expected some of every class"
            )
        check_splits(path, "image", listing.labels, _parts(listing, listing.names, settings))
    sources = {"data": path} if path.is_dir() or not listing.folder else {"data": path, "images": listing.folder}
    return OwnImageTask(name, tuple(classes), ("a photo of a {}.",), f"images of {path.name}", sources, settings)


def known_name(label: str, classes: Sequence[str]) -> str:
    """The class that a label names; the label if it names none.  Case, spaces and punctuation are ignored, unless
    several classes differ only in them."""
    similar = [name for name in classes if plain_name(name) == plain_name(label)]
    return similar[0] if label not in classes and len(similar) == 1 else label


def _numbers(path: Path, labels: Sequence[str], classes: Sequence[str], *, numbers: bool) -> dict[str, int]:
    """The class number of every label."""
    number_of = {name: number for number, name in enumerate(classes)}
    named = {label: known_name(label, classes) for label in labels}
    valid = [str(number) for number in range(len(classes))]
    if numbers and {*labels} <= {*valid} and not {*named.values()} <= number_of.keys():
        return {label: int(label) for label in labels}
    for label, name in named.items():
        if name not in number_of:
            raise TallmasksError(
                f"{path}: found the class {short(label)}, which the model does not know; expected "
                f"{', '.join(map(short, classes[:20]))}{', ...' if len(classes) > 20 else ''}"
            )
        if other := next((one for one in labels if one != label and named[one] == name), None):
            raise TallmasksError(f"{path}: {short(label)} and {short(other)} are the same class; give it one name")
    return {label: number_of[name] for label, name in named.items()}


def _parts(listing: Listing, contents: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """The split of every image: that of the data, whose training images are divided for the splits that are missing."""
    parts = list(listing.parts)
    fractions = {part: size for part, size in settings["fractions"].items() if part not in parts}
    train = [index for index, part in enumerate(parts) if part == "train"]
    of_train = divided(
        [contents[index] for index in train], [listing.labels[index] for index in train], fractions, settings["seed"]
    )
    for index, part in zip(train, of_train, strict=True):
        parts[index] = part
    return parts


def sample_of(task: OwnImageTask, name: str, count: int) -> list[Image.Image]:
    """Some of a task's images, spread over all; those that cannot be decoded are left out."""
    listing = list_images(name, task.sources["data"], task.settings["columns"])
    step = max(1, len(listing.names) // count)
    images = list[Image.Image]()
    for encoded in islice(listing.images(), 0, step * count, step):
        with suppress(Undecodable):
            images.append(decoded(encoded))
    return images


def images_of(
    task: str, path: Path, settings: Mapping[str, Any], split: str, limit: int | None, threads: int, say: Say
) -> OwnImages:
    """The images of one split or, of "all", in the order of the data; with more than ``limit``, a sample by a hash.

    Equal pictures are in the same split, unless the data say their splits.  Images that cannot be decoded are named and
    left out.  Raises TallmasksError if they are more than 0.1 %, or none is of the split.
    """
    listing = list_images(task, path, settings["columns"])
    hashes = _hashes(task, listing, threads, say)
    kept = [index for index, content in enumerate(hashes) if content]
    found = Listing(
        [listing.names[index] for index in kept],
        [listing.labels[index] for index in kept],
        [listing.parts[index] for index in kept],
        listing.images,
    )
    contents = [hashes[index] for index in kept]
    chosen = kept
    if split != "all":
        parts = _parts(found, contents, settings)
        if twice := repeated(path, "image", contents, parts):
            say(f"warning: {task}: {twice}")
        own = [place for place, part in enumerate(parts) if part == split]
        own.sort(key=lambda place: hash_order(settings["seed"], contents[place]))
        chosen = sorted(kept[place] for place in own[:limit])
        if not chosen:
            raise TallmasksError(f"{path}: found no {split} images; expected some")
    wanted = {*chosen}

    def images() -> Iterator[Image.Image]:
        for index, encoded in enumerate(listing.images()):
            if index in wanted:
                try:
                    yield decoded(encoded)
                except Undecodable as error:
                    raise TallmasksError(f"{listing.names[index]}: changed while it was read: {error}") from None

    return OwnImages(np.array([settings["labels"][listing.labels[index]] for index in chosen], np.int64), images)


def _hashes(task: str, listing: Listing, threads: int, say: Say) -> list[str]:
    """The hash of every image's pixels; empty if it cannot be decoded."""

    def attempt(encoded: bytes | Path) -> tuple[str, str]:
        try:
            return pixel_hash(decoded(encoded)), ""
        except Undecodable as error:
            return "", str(error)

    images, results = listing.images(), list[tuple[str, str]]()
    while chunk := list(islice(images, _CHUNK)):
        results += parallel(attempt, chunk, threads)
    failed = [f"{name}: {why}" for name, (_, why) in zip(listing.names, results, strict=True) if why]
    for one in failed[:20]:
        say(f"warning: {task}: skipped, cannot be decoded: {one}")
    if len(failed) > LARGEST_UNDECODABLE * len(results):
        raise TallmasksError(
            f"{task}: {len(failed)} of {counted(len(results), 'image')} cannot be decoded, more than the "
            f"{LARGEST_UNDECODABLE:.1%} that may be skipped: {'; '.join(failed[:3])}. Correct or remove them"
        )
    return [content for content, _ in results]
