"""The paper's 20 vision tasks, declared in `vision_tasks.yaml`.

Class names and templates are copied exactly from the paper's code (`nik-dim/tall_masks`), because zero-shot heads are
made from them: the underscores in Food101 and CIFAR100 and the brackets in FER2013 are intended.  Class i is label i of
the dataset on the hub.  Three exceptions:

- FER2013: the paper's code lists the classes in Kaggle's order, but the dataset it reads (`Jeneral/fer-2013`) numbers
  them alphabetically.  So "neutral", "sad" and "surprise" get the prompts of "sad", "surprised" and "neutral" there.
  Here every class has its own prompt; the wording "published" keeps the paper's pairing.
- EMNIST is the split `digits`, transposed as NIST and torchvision store it.  No commit of its repository is known, so
  the number of images in total and per digit is checked against NIST's description.
- DTD: the paper's training folder contains all 5,640 images, including the test images (its validation accuracies are
  multiples of 1/564).  Here train has 3,760 images and test the other 1,880.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reproduction.tasks.dataset_files import HubFiles
from reproduction.tasks.task import Task, shipped_yaml

_FOLDER = Path(__file__).parent
_FILES = {"train": "data/train-*.parquet", "test": "data/test-*.parquet"}
LOCAL = "Parquet files or of one folder per class"  # what can be in a local folder instead
_SOURCE = ("hub", "files", "revision", "image", "label")


@dataclass(frozen=True)
class DatasetSource(HubFiles):
    """The location of an image dataset on the Hugging Face hub, and the names of its columns.

    The files are Parquet, WebDataset tars (`<key>.<image format>` and `<key>.cls`) or gzipped IDX files.
    """

    image: str = "image"
    label: str = "label"


@dataclass(frozen=True)
class VisionTask(Task):
    """A task on an image dataset.

    Attributes:
        counts: Images in the published train and test split.
        aliases: Other class names by label, used in the files or as folder names.
        wordings: Other class names that published checkpoints were fine-tuned with, by publisher, from
            `class_names/<task>.<publisher>.txt`.
        balanced: True if all classes have equally many images.
    """

    source: DatasetSource
    counts: Mapping[str, int]
    aliases: Mapping[int, str] = field(default_factory=dict)
    wordings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    balanced: bool = False

    def worded_for(self, checkpoints: str) -> Task:
        return replace(self, classes=self.wordings.get(checkpoints, self.classes))


def held_out_of(count: int) -> int:
    """The number of validation images among `count` published training images, as in the paper."""
    return min(int(count * 0.1), 5000)


def own_task(name: str, classes: Sequence[str], templates: Sequence[str] = ()) -> VisionTask:
    """A task declared in params.yaml, with its data in a local folder."""
    files = {"train": "train-*.parquet", "test": "test-*.parquet"}
    return VisionTask(name, tuple(classes), tuple(templates), "a task of one's own", DatasetSource("", files, None), {})


def vision_task_of(params: Mapping[str, Any]) -> VisionTask:
    """The task of a recipe, with the recipe's revision."""
    name, data = params["task"], params["data"]
    if name not in TASKS:
        return own_task(name, data["classes"])
    task = TASKS[name]
    return replace(task, source=replace(task.source, revision=data.get("revision", task.source.revision)))


def _class_names(name: str) -> tuple[str, ...]:
    return tuple((_FOLDER / "class_names" / f"{name}.txt").read_text(encoding="utf-8").splitlines())


def _shipped(name: str, declared: dict[str, Any]) -> VisionTask:
    source = {"files": _FILES, "revision": None} | {key: declared.pop(key) for key in _SOURCE if key in declared}
    declared["templates"] = tuple(declared["templates"])
    declared["wordings"] = {other: _class_names(f"{name}.{other}") for other in declared.get("wordings", ())}
    return VisionTask(name=name, classes=_class_names(name), source=DatasetSource(**source), **declared)


TASKS: Mapping[str, VisionTask] = {
    name: _shipped(name, declared) for name, declared in shipped_yaml(_FOLDER / "vision_tasks.yaml").items()
}
