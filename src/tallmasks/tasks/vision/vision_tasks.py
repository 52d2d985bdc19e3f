"""The paper's 20 vision tasks, declared in `vision_tasks.yaml`: where their data are, and how CLIP is asked for them.

Class names and templates are those of the paper's code (`nik-dim/tall_masks`), letter for letter, since a head is made
from them: Food101 and CIFAR100 keep their underscores, FER2013 the brackets that its lists of synonyms were printed
with.  Class i of `classes` is label i of the dataset on the hub.  Three surprises:

- FER2013: the paper's code lists the classes as Kaggle's file numbers them, but the dataset it reads
  (`Jeneral/fer-2013`) numbers them alphabetically.  So there "neutral", "sad" and "surprise" met the prompts of "sad",
  "surprised" and "neutral".  Here every class has its own prompt; the wording "published" keeps the paper's pairing.
- EMNIST is the split `digits`, as NIST stores it: transposed, like torchvision's.  No commit of its repository is
  known, so its files are compared with NIST's description: the number of images, and as many of every digit.
- DTD: the paper's training folder holds 5,640 images, all there are, test images included.  Its accuracies are
  multiples of 1/564 on validation data.  Here train has 3,760 images and test the other 1,880.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tallmasks.tasks.dataset_files import HubFiles
from tallmasks.tasks.task import Task, shipped_yaml

VALIDATION_SHARE, LARGEST_VALIDATION = 0.1, 5000  # of the training set; the paper's
_FOLDER = Path(__file__).parent
_FILES = {"train": "data/train-*.parquet", "test": "data/test-*.parquet"}
_SOURCE = ("hub", "files", "revision", "image", "label")


@dataclass(frozen=True)
class DatasetSource(HubFiles):
    """Where a dataset of images lies on the Hugging Face hub.

    The files are Parquet, WebDataset tars (`<key>.<image format>` and `<key>.cls`) or IDX files (gzipped, images before
    labels).

    Attributes:
        image: The column of the images.
        label: The column of the labels.
    """

    image: str = "image"
    label: str = "label"


@dataclass(frozen=True)
class VisionTask(Task):
    """A task with a dataset.

    Attributes:
        counts: Images in the dataset's own train and test split.
        aliases: Other names of classes, by label: in the files' metadata or as folder names.
        wordings: Other class names that published checkpoints were fine-tuned with, by publisher.  Their files stand
            beside that of `classes`: `class_names/<task>.<publisher>.txt`.
        balanced: Whether every class has as many images as any other.
    """

    source: DatasetSource
    counts: Mapping[str, int]
    aliases: Mapping[int, str] = field(default_factory=dict)
    wordings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    balanced: bool = False

    def worded_for(self, checkpoints: str) -> Task:
        return replace(self, classes=self.wordings.get(checkpoints, self.classes))


def own_task(name: str, classes: Sequence[str], templates: Sequence[str] = ()) -> VisionTask:
    """A task that params.yaml describes, whose data lie in a local folder."""
    files = {"train": "train-*.parquet", "test": "test-*.parquet"}
    return VisionTask(name, tuple(classes), tuple(templates), "a task of one's own", DatasetSource("", files, None), {})


def vision_task_of(params: Mapping[str, Any]) -> VisionTask:
    """The task of a recipe with these parameters."""
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
