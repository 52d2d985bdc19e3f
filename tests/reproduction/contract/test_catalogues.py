"""The contract of a catalogue: examples follow from the recipe, splits and seeds share none; data files that are not
there, not whole or not in this place are named."""

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

import image_files
import text_data
from loopback_hub import Repository, loopback_hub
from reproduction.tasks.catalogues import ExamplesFile, catalogue
from reproduction.tasks.text import TASKS as TEXTS
from reproduction.tasks.texts import open_texts
from reproduction.tasks.vision import TASKS as IMAGES
from tallmasks.errors import TallmasksError
from tallmasks.io import hub
from tallmasks.io.tensor_files import open_tensors

MADE = [(name, task) for name in ("tiny_worlds.drawn", "tiny_worlds.written") for task in catalogue(name).tasks({})]
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
    """The input of every example."""
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


FILES: dict[str, Any] = {"vision": image_files, "text": text_data}
TASKS = {"vision": IMAGES, "text": {name: task for name, task in TEXTS.items() if not task.ask}}
MODEL = {"preprocess": {"size": 32}, "examples": {"validation": 2}}
COUNTS = {"train": 12, "test": 8}


def written(folder: Path, name: str, task: str, **data: str) -> Path:
    """The file of a task's test examples, from a local folder (`path`) or the hub."""
    recipe = catalogue(name).recipe({"data": {task: data}}, MODEL, task, "test", folder)
    out = ExamplesFile(folder / "out", {"recipe": "r"}, say=lambda line: None)
    catalogue(name).write(json.loads(json.dumps(recipe.params)), recipe.sources, out)
    return out.path


def missing(name: str, task: str, **data: str) -> str | None:
    return catalogue(name).missing(catalogue(name).recipe({"data": {task: data}}, MODEL, task, "test", Path()).params)


@pytest.mark.parametrize(("name", "task"), [(name, task) for name, tasks in TASKS.items() for task in tasks])
def test_without_network_the_missing_source_is_named_at_once(
    name: str, task: str, offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run would retry for minutes, or end in a traceback that says nothing of what to do."""
    monkeypatch.setattr(HfApi, "list_repo_files", lambda *_, **__: pytest.fail("asked the hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.org")
    said, source = missing(name, task), TASKS[name][task].source
    for word in (f" mirror.org/datasets/{source.hub} at ", f"data.{task}.path", "hf download", "does not answer"):
        assert said and word in said and "\n" not in said
    assert source.revision is None or f" at {source.revision}" in str(said)
    with pytest.raises(TallmasksError) as error:
        written(tmp_path, name, task)
    assert str(error.value) == said


@pytest.mark.parametrize(("name", "task"), [("vision", "cifar100"), ("text", "qasc")])
def test_what_is_cached_needs_no_network(name: str, task: str, offline: Path, tmp_path: Path) -> None:
    """A compute node without a network would refuse data in its cache."""
    source, revision = TASKS[name][task].source, "2" * 40
    FILES[name].write_repository(FILES[name].cached_repository(offline, task, "1" * 40), task, COUNTS)
    assert "does not answer" in str(missing(name, task, revision=revision)), "another commit is there"
    FILES[name].write_repository(FILES[name].cached_repository(offline, task, "2" * 40), task, COUNTS)
    assert missing(name, task, revision=revision) is None
    facts = json.loads(open_tensors(written(tmp_path, name, task, revision=revision)).metadata["origin"])
    assert facts["revision"] == "2" * 40 and facts["source"] == f"huggingface.co/datasets/{source.hub}"


@pytest.mark.parametrize(("name", "task"), [("vision", "stl10"), ("text", "paws")])
def test_a_damaged_download_is_named_and_comes_back_as_advised(name: str, task: str, tmp_path: Path) -> None:
    """Models would be trained on flipped bytes; or who deletes what the message names would get the same file again."""
    source = TASKS[name][task].source
    FILES[name].write_repository(tmp_path / "files", task, COUNTS)
    with loopback_hub(tmp_path / "files", tmp_path / "cache") as server:
        server.repositories["datasets", source.hub] = Repository(tmp_path / "files", str(source.revision))
        right = written(tmp_path, name, task).read_bytes()
        link = Path(str(hub.cached(source.hub, server.downloads[-1], str(source.revision), "dataset")))
        for shared in (False, True):
            blob = link.resolve()
            if shared:  # as Xet's: a link to a file with a name of another kind, which other repositories have too
                blob = blob.rename(tmp_path / ("0" * 64))
                link.resolve().symlink_to(blob)
            content = blob.read_bytes()
            blob.write_bytes(content[:9] + bytes([content[9] ^ 1]) + content[10:] if shared else content[:-9])
            with pytest.raises(TallmasksError, match=rf"^{link} .*Delete {blob}"):
                written(tmp_path, name, task)
            blob.unlink()
            assert written(tmp_path, name, task).read_bytes() == right
