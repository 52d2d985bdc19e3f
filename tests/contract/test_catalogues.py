"""The contract of a catalogue that makes its examples: they follow from the recipe, and splits and seeds share none."""

import json
from pathlib import Path

import pytest

from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import open_tensors
from tallmasks.tasks.catalogues import ExamplesFile, catalogue
from tallmasks.tasks.texts import open_texts

MADE = [(name, task) for name in ("drawn", "written") for task in catalogue(name).tasks({})]
COUNT = 24


def made(folder: Path, name: str, task: str, split: str, seed: int) -> Path:
    """The file of examples that a recipe asks for, as the workflow writes it."""
    model = {"examples": {"seed": seed, "train": COUNT, "validation": COUNT, "test": COUNT}}
    recipe = catalogue(name).recipe({}, model, task, split, folder)
    assert not recipe.sources and catalogue(name).missing(recipe.params) is None
    out = ExamplesFile(folder / f"{split}-{seed}", {"recipe": "r"}, say=lambda line: None)
    out.path.unlink(missing_ok=True)
    catalogue(name).write(json.loads(json.dumps(recipe.params)), {}, out)
    return out.path


def shown(path: Path) -> set[object]:
    """What a model is shown of each example."""
    if "images" in open_tensors(path).shapes:
        return {image.tobytes() for image in open_tensors(path).view("images")}
    return {text.input for text in open_texts(path)}


@pytest.mark.parametrize(("name", "task"), MADE)
def test_examples_follow_from_the_recipe_and_splits_share_none(name: str, task: str, tmp_path: Path) -> None:
    """Two machines would fine-tune on different data under one recipe, or a test score be of training examples."""
    splits = {split: made(tmp_path, name, task, split, 5) for split in ("train", "validation", "test")}
    content, examples = splits["test"].read_bytes(), [shown(path) for path in splits.values()]
    assert made(tmp_path, name, task, "test", 5).read_bytes() == content
    assert sum(map(len, examples)) == len(set.union(*examples)) > COUNT
    if task != "mnist":  # real digits, which no seed changes
        assert made(tmp_path, name, task, "test", 6).read_bytes() != content


@pytest.mark.parametrize("name", ["drawn", "written"])
def test_a_model_without_examples_is_refused(name: str, tmp_path: Path) -> None:
    """A forgotten key would end in a traceback."""
    with pytest.raises(TallmasksError, match="needs `examples`"):
        catalogue(name).recipe({}, {}, next(iter(catalogue(name).tasks({}))), "test", tmp_path)
