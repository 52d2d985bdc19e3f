"""The drawn tasks and their examples; every file in the folder ``own`` adds a task to the 20."""

import importlib
import inspect
import pkgutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reproduction.tasks.task import SPLITS, Split, Task
from tallmasks.errors import TallmasksError
from tallmasks.io.fingerprints import digest_of_code
from tiny_worlds.drawn import glyphs, objects, own, scenes
from tiny_worlds.drawn.canvas import Canvas, Draw
from tiny_worlds.drawn.shift import SHIFTS, Step, shifted

WORDINGS = ("a photo of {}", "a picture of {}", "{}", "an image of {}")

# scikit-learn has 1,797 digits; start and end of each split in shuffled order
DIGIT_SPLITS: Mapping[Split, tuple[int, int]] = {"train": (0, 1000), "validation": (1000, 1300), "test": (1300, 1797)}


@dataclass(frozen=True)
class DrawnTask(Task):
    """A task with drawn images.

    Attributes:
        draw: Draws an example of a label on a canvas.
        real: True if the examples are real images; ``draw`` is then used only for pretraining.
        shift: Distortions of every picture except in pretraining, applied in this order.
        code: Digest of the file that defines the task, for tasks in ``own``; part of the recipes.
    """

    draw: Draw
    real: bool = False
    shift: tuple[Step, ...] = ()
    code: str | None = None


def _templates(phrase: str) -> tuple[str, ...]:
    return tuple(wording.format(phrase) for wording in WORDINGS)


def _drawn(
    name: str, classes: Iterable[str], phrase: str, description: str, draw: Draw, real: bool = False
) -> DrawnTask:
    return DrawnTask(name, tuple(classes), _templates(phrase), description, draw, real, SHIFTS[name])


_tasks = {task.name: task for task in (
    _drawn("cars", objects.VEHICLES, "a {}",
        "vehicles from the side; grey negative, low contrast, upside down", objects.vehicle),
    _drawn("dtd", scenes.TEXTURES, "{} texture", "textures; low contrast, uneven light, grain", scenes.texture),
    _drawn("eurosat", scenes.LAND, "satellite image of {}", "land from a satellite; false colour", scenes.land_cover),
    _drawn("gtsrb", objects.SIGNS, "a {} traffic sign", "traffic signs; at dusk, mirrored", objects.traffic_sign),
    _drawn("mnist", glyphs.DIGITS, "a white digit {}",
        "scikit-learn's real handwritten digits; pretraining saw printed ones", glyphs.white_digit, real=True),
    _drawn("resisc45", scenes.AERIAL, "aerial view of {}", "buildings from the air; grey, with speckle", scenes.aerial),
    _drawn("sun397", scenes.PLACES, "a view of {}", "outdoor scenes; a pale negative", scenes.place),
    _drawn("svhn", glyphs.DIGITS, "the number {}", "house numbers; mirrored, low contrast", glyphs.house_number),
    _drawn("cifar100", objects.COLOURED_SHAPES, "a shape, {}",
        "shapes in colours, 30 classes; under sodium light", objects.coloured_shape),
    _drawn("stl10", objects.HOUSEHOLD, "an object, {}",
        "things from around the house; upside down, flat light", objects.household),
    _drawn("flowers102", objects.FLOWERS, "a flower, {}", "flowers; false colour", objects.flower),
    _drawn("oxfordiiitpet", objects.PETS, "a pet, {}", "cats and dogs in four coats; grey negative", objects.pet),
    _drawn("pcam", scenes.TISSUE, "{} tissue", "cells under a microscope; grey negative", scenes.tissue),
    _drawn("fer2013", objects.MOODS, "a {} face", "faces that show a mood; flat light", objects.face),
    _drawn("emnist", glyphs.LETTERS, "the letter {}", "capital letters; flat light", glyphs.letter),
    _drawn("cifar10", objects.ANIMALS, "an animal, {}", "small animals; negative, in flat light", objects.animal),
    _drawn("food101", objects.FOOD, "a fruit, {}", "fruit and vegetables; false colour", objects.food),
    _drawn("fashionmnist", objects.CLOTHES, "clothing, {}", "clothes in grey; flat light", objects.garment),
    _drawn("renderedsst2", glyphs.WORDS, "a {} word", "short words, good or bad; low contrast", glyphs.word),
    _drawn("kmnist", glyphs.GREEK, "the greek letter {}", "small Greek letters; flat light", glyphs.greek_letter),
)}  # fmt: skip
TASKS: Mapping[str, DrawnTask] = _tasks


def drawn(
    name: str, *, classes: tuple[str, ...], phrase: str, description: str, shift: tuple[Step, ...] = ()
) -> Callable[[Draw], Draw]:
    """Decorator that registers a function (canvas, label) as a task.

    Args:
        name: The task's name in params.yaml and in the tables.
        classes: Class names in label order.
        phrase: Inserted into the prompts, with ``{}`` for the class name.  All words must occur in the tasks that the
            tiny model was pretrained on.
        description: What an image shows.
        shift: See ``DrawnTask``.
    """

    def register(draw: Draw) -> Draw:
        if name in _tasks:
            raise ValueError(f"drawn task {name} is registered twice")
        if "{}" not in phrase or len({*classes}) < max(2, len(classes)):
            raise ValueError(f"drawn task {name}: expected {{}} in its phrase, and classes that differ, 2 or more")
        code = digest_of_code(Path(inspect.getfile(draw)))
        _tasks[name] = DrawnTask(name, classes, _templates(phrase), description, draw, shift=shift, code=code)
        return draw

    return register


for _module in pkgutil.iter_modules(own.__path__):
    importlib.import_module(f"{own.__name__}.{_module.name}")
NAMES: tuple[str, ...] = tuple(TASKS)  # in the paper's order (8, 6 more, 6 more), then those in ``own``


def picture(task: DrawnTask, label: int, field: bool, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One drawing without the task's shift, uint8 [32, 32, 3]."""
    canvas = Canvas(rng, field)
    task.draw(canvas, label)
    return canvas.finished()


def examples(task: str, split: Split, count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Draw images uint8 [N, 32, 32, 3] with labels int64 [N], deterministically; classes are balanced.

    The real digits of "mnist" are at most 1,000, 300 and 497, so N can be less than ``count``.

    Raises TallmasksError if there is no such task or split, or the count is not positive.
    """
    if task not in TASKS:
        raise TallmasksError(f"No drawn task is named {task!r}. There are: {', '.join(NAMES)}.")
    if split not in SPLITS:
        raise TallmasksError(f"Task {task!r} has no split {split!r}. There are: {', '.join(SPLITS)}.")
    if count < 1:
        raise TallmasksError(f"Task {task!r}: cannot draw {count} examples for {split}; ask for at least 1.")
    if TASKS[task].real:
        return _handwritten(split, count, seed)
    stream = (seed, zlib.crc32(task.encode()), SPLITS.index(split))
    labels = np.arange(count) % len(TASKS[task].classes)
    rngs = (np.random.default_rng((*stream, index)) for index in range(count))
    images = np.stack([picture(TASKS[task], int(label), True, rng) for label, rng in zip(labels, rngs, strict=True)])
    return shifted(TASKS[task].shift, images, np.random.default_rng(stream)), labels.astype(np.int64)


def _handwritten(split: Split, count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The real digits of a split; the seed shuffles all digits before they are split."""
    images, labels = glyphs.handwritten_digits()
    start, end = DIGIT_SPLITS[split]
    chosen = np.random.default_rng(seed).permutation(len(labels))[start:end][:count]
    return images[chosen], labels[chosen]
