"""Decode one split of a vision task once, into arrays that are mapped into memory ever after.

The stored pixels depend on the images and on the side of the models' input:

- Small squares of one size (28 x 28 to 96 x 96 in the paper) are kept, and resized on the device.
- Larger images for validation and test are as after open_clip's evaluation transform: shorter side resized, centre
  cropped.
- Larger images for training are made square, a seventh larger than the models' input.  Their own height and width stand
  beside them (`sizes`), for open_clip's random crops on the device.  Images longer than any such crop lose their ends.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import TensorSpec, new_tensors
from tallmasks.parallel import parallel
from tallmasks.tasks.task import Split, published_part
from tallmasks.tasks.vision.data_files import Dataset, Encoded, files_of, open_dataset
from tallmasks.tasks.vision.vision_tasks import LARGEST_VALIDATION, TASKS, VALIDATION_SHARE, VisionTask

LARGEST_UNDECODABLE = 0.001  # share of a split; such images are left out and named, more are an error
KEPT_SIDE = 112  # squares no larger than this are kept as they are
KEPT = {
    "eurosat": 64, "mnist": 28, "svhn": 32, "cifar100": 32, "stl10": 96, "pcam": 96, "fer2013": 48, "emnist": 28,
    "cifar10": 32, "fashionmnist": 28, "kmnist": 28,
}  # fmt: skip
"""The side of the paper's tasks with small squares."""
TRAINING_MARGIN = 8 / 7  # side of stored training images by the side that the models take
LONGEST_RATIO = (4 / 3) / 0.9  # of an image that fits one of open_clip's training crops
CHUNK = 512

Decoded = tuple[NDArray[np.uint8], tuple[int, int]]  # pixels, and the height and width that they stand for
Say = Callable[[str], None]


def split_indices(count: int, split: Split) -> NDArray[np.int64]:
    """The examples of "train" or "validation" among `count` published training examples, in the paper's order.

    Validation has a tenth, at most 5,000, drawn with seed 0.
    """
    import torch
    from torch.utils.data import random_split

    validation = _held_out(count)
    everything: Any = range(count)  # all that it needs of a dataset
    train, held_out = random_split(everything, [count - validation, validation], torch.Generator().manual_seed(0))
    return np.array((train if split == "train" else held_out).indices, np.int64)


def _held_out(count: int) -> int:
    return min(int(count * VALIDATION_SHARE), LARGEST_VALIDATION)


def image_count(recipe: Mapping[str, Any]) -> int:
    """How many images a recipe of examples has; 0 for a task of one's own, which nobody has counted."""
    if recipe["task"] not in TASKS:
        return 0
    train, test = (TASKS[recipe["task"]].counts[part] for part in ("train", "test"))
    return {"train": train - _held_out(train), "validation": _held_out(train), "test": test}[recipe["split"]]


def example_bytes(recipe: Mapping[str, Any]) -> int:
    """Bytes of the decoded images of a recipe of examples."""
    task, split, side = recipe["task"], recipe["split"], recipe["side"]
    return 3 * image_count(recipe) * KEPT.get(task, round(side * TRAINING_MARGIN) if split == "train" else side) ** 2


def write_examples(
    task: VisionTask,
    split: Split,
    side: int,
    output: Path,
    metadata: Mapping[str, str],
    folder: Path | None = None,
    threads: int = 1,
    say: Say = print,
) -> None:
    """Decode a split into a file: `images` uint8 [N, S, S, 3], `labels` int64 [N], perhaps `sizes` int32 [N, 2].

    The metadata get "origin" as JSON: where the images are from, their number, and everything unexpected.

    ``side``: pixels to a side of the models' input; ``folder``: a local folder with the data, instead of the hub.

    Raises TallmasksError where the data cannot be had or are not this task's, or too many images cannot be decoded.
    """
    part = published_part(split)
    files = files_of(task, part, folder)
    dataset = open_dataset(task, files)
    odd = _odd_counts(task, part, dataset.labels)
    notes = [*dataset.notes, *odd]
    if odd and folder is None and task.source.revision is None:
        raise TallmasksError(
            f"{files.origin} at {files.revision}: {task.name}: {'; '.join(odd)}. No commit of this repository is "
            f"pinned, and it no longer holds what it did: name one that does as data.{task.name}.revision in "
            f"params.yaml, or a local folder as data.{task.name}.path"
        )
    if absent := len(task.classes) - len(np.unique(dataset.labels)):
        notes.append(f"{absent} of {len(task.classes)} classes have no {part} image")
    wanted = np.ones(len(dataset.labels), bool)
    if split != "test":
        wanted[:] = False
        wanted[split_indices(len(wanted), split)] = True
    if not wanted.any():
        raise TallmasksError(f"{files.origin}: {task.name}: no images for {split}; {part} has {len(dataset.labels)}")
    for note in notes:
        say(f"warning: {task.name}: {note}")
    decode, stored_side, has_sizes = _way_of_decoding(dataset, split, side)
    undecodable: dict[int, str] = {}
    while True:  # a second time if some images cannot be decoded: the file's size must be known before
        count = int(wanted.sum())
        facts = {
            "source": files.origin if folder is None else "a local folder",  # its path does not matter
            "revision": files.revision,
            "images": count,
            "warnings": notes,
            "undecodable": list(undecodable.values()),
        }
        specs = {
            "images": TensorSpec(np.dtype(np.uint8), (count, stored_side, stored_side, 3)),
            "labels": TensorSpec(np.dtype(np.int64), (count,)),
        }
        if has_sizes:
            specs["sizes"] = TensorSpec(np.dtype(np.int32), (count, 2))
        failed: dict[int, str] = {}
        with suppress(_Undecodable), new_tensors(output, specs, {**metadata, "origin": json.dumps(facts)}) as new:
            new.tensors["labels"][:] = dataset.labels[wanted]
            for row, (index, name, decoded) in enumerate(_decoded(dataset, wanted, decode, threads)):
                if isinstance(decoded, str):
                    failed[index] = f"{name}: {decoded}"
                else:
                    new.tensors["images"][row] = decoded[0]
                    if has_sizes:
                        new.tensors["sizes"][row] = decoded[1]
                if (row + 1) % 10_000 == 0 or row + 1 == count:
                    say(f"{task.name} {split}: {row + 1} of {count} images decoded")
            if failed:
                raise _Undecodable
        if not failed:
            return
        undecodable |= failed
        for name in islice(undecodable.values(), 20):
            say(f"warning: {task.name} {split}: left out, cannot be decoded: {name}")
        if len(undecodable) > LARGEST_UNDECODABLE * count:
            raise TallmasksError(
                f"{task.name} {split}: {len(undecodable)} of {count} images cannot be decoded, more than the "
                f"{LARGEST_UNDECODABLE:.1%} that may be left out: {'; '.join(islice(undecodable.values(), 3))}. Get "
                "the data again."
            )
        wanted[list(failed)] = False


def _odd_counts(task: VisionTask, part: str, labels: NDArray[np.int64]) -> list[str]:
    """What is unexpected about the number of images, in all and, of a balanced task, by class."""
    expected = task.counts.get(part, len(labels))
    if len(labels) != expected:
        return [f"{len(labels)} {part} images, expected {expected}"]
    by_class = np.bincount(labels, minlength=len(task.classes))
    if task.balanced and by_class.min() != by_class.max():
        few = int(by_class.argmin())
        return [
            f"{by_class[few]} {part} images of class {task.classes[few]!r}, expected "
            f"{expected // len(task.classes)} as of any other"
        ]
    return []


class _Undecodable(Exception):
    """Some images could not be decoded, so the file has too many rows and is dropped."""


def _decoded(
    dataset: Dataset, wanted: NDArray[np.bool_], decode: Callable[[Image.Image], Decoded], threads: int
) -> Iterator[tuple[int, str, Decoded | str]]:
    """The wanted images in their order: index in the dataset, name, and the decoded image or an error message."""

    def attempt(example: tuple[int, tuple[str, Encoded]]) -> tuple[int, str, Decoded | str]:
        index, (name, encoded) = example
        try:
            return index, name, decode(open_image(encoded))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow raises all of them
            return index, name, str(error) or type(error).__name__

    examples = ((index, example) for index, example in enumerate(dataset.images()) if wanted[index])
    while chunk := list(islice(examples, CHUNK)):  # Pillow decodes without the interpreter's lock
        yield from parallel(attempt, chunk, threads)


def _opened(encoded: Encoded) -> Image.Image:
    """An image whose header alone is read."""
    if isinstance(encoded, np.ndarray):
        return Image.fromarray(encoded)
    return Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)


def open_image(encoded: Encoded) -> Image.Image:
    """An image as RGB, as by torchvision's loader: without transparency or a palette.  16-bit greys are scaled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about TIFFs in SUN397 that can be read, and about palettes
        with _opened(encoded) as image:
            if image.mode.startswith("I;16"):  # which Pillow would cut off at 255
                return Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8)).convert("RGB")
            return image.convert("RGB")


def _size_of(encoded: Encoded) -> tuple[int, int] | None:
    """Width and height from the header; None for a damaged one."""
    try:
        with _opened(encoded) as image:
            return image.size
    except OSError:
        return None


def _way_of_decoding(dataset: Dataset, split: Split, side: int) -> tuple[Callable[[Image.Image], Decoded], int, bool]:
    """The decoding function, the side of the stored images, and whether their own sizes are stored too.

    It reads all headers if the images are small squares of one size.
    """
    sizes = (size for _, encoded in dataset.images() if (size := _size_of(encoded)))
    first = next(sizes, (0, 0))
    if first[0] == first[1] <= min(KEPT_SIDE, side) and first[0] and all(size == first for size in sizes):
        return lambda image: (np.asarray(image), (image.height, image.width)), first[0], False
    if split == "train":
        stored = round(side * TRAINING_MARGIN)
        return lambda image: squashed(image, stored), stored, True
    return lambda image: centre_cropped(image, side), side, False


def centre_cropped(image: Image.Image, side: int) -> Decoded:
    """open_clip's evaluation transform: shorter side resized, bicubic, centre cropped."""
    from torchvision.transforms import InterpolationMode, functional

    resized = functional.resize(image, side, InterpolationMode.BICUBIC)
    return np.asarray(functional.center_crop(resized, [side])), (image.height, image.width)


def squashed(image: Image.Image, side: int) -> Decoded:
    """An image as a square, without the ends of one too long for a training crop, and its own size."""
    width = min(image.width, round(image.height * LONGEST_RATIO))
    height = min(image.height, round(image.width * LONGEST_RATIO))
    left, top = (image.width - width) // 2, (image.height - height) // 2
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box)), (height, width)
