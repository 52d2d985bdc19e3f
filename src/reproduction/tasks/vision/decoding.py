"""Decodes the images of one split into arrays that are memory-mapped later.

- Small square images of equal size (28 to 96 pixels in the paper) are stored unchanged and resized on the device.
- Larger validation and test images are stored as open_clip's evaluation transform makes them: shorter side resized,
  centre cropped.
- Larger training images are squashed to a square of 8/7 of the model's input size.  Their original sizes are stored
  too (`sizes`), for open_clip's random crops on the device.  Images longer than any such crop are trimmed at both ends.
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

from reproduction.tasks.task import Split, published_part
from reproduction.tasks.vision.data_files import Dataset, Encoded, files_of, open_dataset
from reproduction.tasks.vision.vision_tasks import VisionTask, held_out_of
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import TensorInfo, new_tensors
from tallmasks.parallel import parallel

LARGEST_UNDECODABLE = 0.001  # fraction of a split that may be skipped (with a warning) before it is an error
KEPT_SIDE = 112  # largest side of small squares that are stored unchanged
TRAINING_MARGIN = 8 / 7  # side of stored training images / side of the model's input
LONGEST_RATIO = (4 / 3) / 0.9  # longest aspect ratio that a training crop of open_clip can cover
CHUNK = 512

Decoded = tuple[NDArray[np.uint8], tuple[int, int]]  # pixels; original height and width
Say = Callable[[str], None]


def split_indices(count: int, split: Split) -> NDArray[np.int64]:
    """Indices of the "train" or "validation" examples among `count` published training examples, in the paper's order.

    The validation examples are drawn with seed 0.
    """
    import torch
    from torch.utils.data import random_split

    validation = held_out_of(count)
    everything: Any = range(count)  # random_split only needs its length
    train, held_out = random_split(everything, [count - validation, validation], torch.Generator().manual_seed(0))
    return np.array((train if split == "train" else held_out).indices, np.int64)


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
    """Decode a split into a file: `images` uint8 [N, S, S, 3], `labels` int64 [N], sometimes `sizes` int32 [N, 2].

    Source, number of images and warnings are added to the metadata, as JSON under "origin".

    Args:
        side: Side of the model's input in pixels.
        folder: A local folder with the data, instead of the hub.

    Raises TallmasksError if the data are unavailable or are not this task's, or too many images cannot be decoded.
    """
    part = published_part(split)
    files = files_of(task, part, folder)
    dataset = open_dataset(task, files)
    odd = _odd_counts(task, part, dataset.labels)
    notes = [*dataset.notes, *odd]
    if odd and folder is None and task.source.revision is None:
        raise TallmasksError(
            f"{files.origin} at {files.revision}: {task.name}: {'; '.join(odd)}. No commit of this repository is "
            f"pinned, and its content has changed: set data.{task.name}.revision in params.yaml to a commit with the "
            f"expected images, or data.{task.name}.path to a local folder"
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
    while True:  # repeated without undecodable images, since the file's size is fixed in advance
        count = int(wanted.sum())
        origin = {
            "source": files.origin if folder is None else "a local folder",  # without its path
            "revision": files.revision,
            "images": count,
            "warnings": notes,
            "undecodable": list(undecodable.values()),
        }
        infos = {
            "images": TensorInfo("U8", (count, stored_side, stored_side, 3)),
            "labels": TensorInfo("I64", (count,)),
        }
        if has_sizes:
            infos["sizes"] = TensorInfo("I32", (count, 2))
        failed: dict[int, str] = {}
        with suppress(_Undecodable), new_tensors(output, infos, {**metadata, "origin": json.dumps(origin)}) as new:
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
            say(f"warning: {task.name} {split}: skipped, cannot be decoded: {name}")
        if len(undecodable) > LARGEST_UNDECODABLE * count:
            raise TallmasksError(
                f"{task.name} {split}: {len(undecodable)} of {count} images cannot be decoded, more than the "
                f"{LARGEST_UNDECODABLE:.1%} that may be skipped: {'; '.join(islice(undecodable.values(), 3))}. "
                "Download the data again."
            )
        wanted[list(failed)] = False


def _odd_counts(task: VisionTask, part: str, labels: NDArray[np.int64]) -> list[str]:
    """Warnings about an unexpected number of images: in total or, for balanced tasks, per class."""
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
    """Discards a file with too many rows because some images could not be decoded."""


UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for a damaged or too large image."""


def _decoded(
    dataset: Dataset, wanted: NDArray[np.bool_], decode: Callable[[Image.Image], Decoded], threads: int
) -> Iterator[tuple[int, str, Decoded | str]]:
    """Index, name, and decoded image or error message of every wanted image, in order."""

    def attempt(example: tuple[int, tuple[str, Encoded]]) -> tuple[int, str, Decoded | str]:
        index, (name, encoded) = example
        try:
            return index, name, decode(open_image(encoded))
        except UNDECODABLE as error:
            return index, name, str(error) or type(error).__name__

    examples = ((index, example) for index, example in enumerate(dataset.images()) if wanted[index])
    while chunk := list(islice(examples, CHUNK)):  # Pillow releases the GIL
        yield from parallel(attempt, chunk, threads)


def _opened(encoded: Encoded) -> Image.Image:
    """Open an image; only its header is read."""
    if isinstance(encoded, np.ndarray):
        return Image.fromarray(encoded)
    return Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)


def open_image(encoded: Encoded) -> Image.Image:
    """An image as RGB, like torchvision's loader.  Raises ValueError for grey levels of more than 8 bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # harmless ones about palettes and SUN397's TIFFs
        with _opened(encoded) as image:
            if image.mode.startswith(("I", "F")):  # Pillow clips them at 255
                raise ValueError(f"grey levels of Pillow's mode {image.mode}; expected 8 bits")
            return image.convert("RGB")


def _size_of(encoded: Encoded) -> tuple[int, int] | None:
    """Width and height from the header; None if it is damaged."""
    try:
        with _opened(encoded) as image:
            return image.size
    except UNDECODABLE:
        return None


def _way_of_decoding(dataset: Dataset, split: Split, side: int) -> tuple[Callable[[Image.Image], Decoded], int, bool]:
    """The decoding function, the side of the stored images, and whether the original sizes are stored too."""
    sizes = (size for _, encoded in dataset.images() if (size := _size_of(encoded)))
    first = next(sizes, (0, 0))
    if first[0] == first[1] <= min(KEPT_SIDE, side) and first[0] and all(size == first for size in sizes):
        return lambda image: (np.asarray(image), (image.height, image.width)), first[0], False
    if split == "train":
        stored = round(side * TRAINING_MARGIN)
        return lambda image: squashed(image, stored), stored, True
    return lambda image: centre_cropped(image, side), side, False


def centre_cropped(image: Image.Image, side: int) -> Decoded:
    """open_clip's evaluation transform: resize the shorter side (bicubic), then centre crop."""
    from torchvision.transforms import InterpolationMode, functional

    resized = functional.resize(image, side, InterpolationMode.BICUBIC)
    return np.asarray(functional.center_crop(resized, [side])), (image.height, image.width)


def squashed(image: Image.Image, side: int) -> Decoded:
    """Resize an image to a square, after trimming the ends of one too long for a training crop."""
    width = min(image.width, round(image.height * LONGEST_RATIO))
    height = min(image.height, round(image.width * LONGEST_RATIO))
    left, top = (image.width - width) // 2, (image.height - height) // 2
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box)), (height, width)
