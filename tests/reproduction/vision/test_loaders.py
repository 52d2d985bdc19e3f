"""The 20 dataset loaders, each on files in the layout that the dataset has on the hub."""

import json
from pathlib import Path

import numpy as np
import pytest
from open_clip.transform import image_transform
from PIL import Image

from image_files import SCHEMAS, write_repository
from reproduction.tasks.catalogues import catalogue
from reproduction.tasks.task import SPLITS
from reproduction.tasks.vision import TASKS
from reproduction.tasks.vision.decoding import split_indices, squashed, write_examples
from tallmasks.io.tensor_files import open_tensors

SIDE = 224
COUNTS = {"train": 12, "test": 5}  # more than ten, as "10" sorts before "2"
REFERENCE = image_transform(SIDE, is_train=False, mean=(0, 0, 0), std=(1, 1, 1))


def reference(image: Image.Image) -> np.ndarray:
    """The output of open_clip's own evaluation transform, uint8 [224, 224, 3]."""
    return (REFERENCE(image.convert("RGB")).permute(1, 2, 0) * 255).round().byte().numpy()


@pytest.mark.parametrize("name", TASKS)
def test_every_dataset_is_read_as_it_is_on_the_hub(name: str, tmp_path: Path) -> None:
    """A task would get wrong images or labels, or a run would fail after hours on an unexpected file layout."""
    content = write_repository(tmp_path / "hub", name, COUNTS)
    kept = SCHEMAS[name].side if (SCHEMAS[name].side or SIDE) <= 96 else None
    for split in SPLITS:
        part = "test" if split == "test" else "train"
        write_examples(TASKS[name], split, SIDE, tmp_path / split, {"recipe": "r"}, tmp_path / "hub", threads=2)
        stored = open_tensors(tmp_path / split)
        images, labels = content[part]
        chosen = sorted(range(COUNTS["test"]) if split == "test" else split_indices(COUNTS["train"], split))
        np.testing.assert_array_equal(stored.view("labels"), [labels[index] for index in chosen])
        for row, index in enumerate(chosen):
            rgb = images[index].convert("RGB")
            if kept:
                expected, size = np.asarray(rgb), None
            elif split == "train":
                expected, size = squashed(rgb, 256)
            else:
                expected, size = reference(images[index]), None
            np.testing.assert_array_equal(stored.view("images")[row], expected)
            if size:
                np.testing.assert_array_equal(stored.view("sizes")[row], size)
        facts = json.loads(stored.metadata["origin"])
        assert stored.metadata["recipe"] == "r" and facts["images"] == len(chosen) and not facts["undecodable"]
        assert any(f"{COUNTS[part]} " in line and str(TASKS[name].counts[part]) in line for line in facts["warnings"])


def test_the_catalogue_is_the_papers() -> None:
    """A benchmark would lack a task, or a head would be built for the wrong classes."""
    assert list(catalogue("vision").tasks({})) == list(catalogue("tiny_worlds.drawn").tasks({}))
    classes = [len(task.classes) for task in TASKS.values()]
    assert classes == [196, 47, 10, 43, 10, 45, 397, 10, 100, 10, 102, 37, 2, 7, 10, 10, 101, 10, 2, 10]
    assert all(len(set(task.classes)) == len(task.classes) for task in TASKS.values())
    assert all("{}" in template for task in TASKS.values() for template in task.templates)
    assert TASKS["fer2013"].prompts(3)[4] == "they look ['happy', 'smiling']."


def test_a_published_head_pairs_classes_and_prompts_as_the_authors_did() -> None:
    """The authors' FER2013 checkpoint would seem to be wrong on three of its seven classes."""
    task = TASKS["fer2013"]
    assert [name.split("'")[1] for name in task.classes][4:] == ["neutral", "sad", "surprised"]
    assert [name.split("'")[1] for name in task.worded_for("published").classes][4:] == ["sad", "surprised", "neutral"]
    assert TASKS["kmnist"].worded_for("fusionbench").classes[0] == "お"
    assert TASKS["cars"].worded_for("published") == TASKS["cars"]
