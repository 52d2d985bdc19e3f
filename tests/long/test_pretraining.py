"""The tiny CLIP's pretraining from pictures to its file, at a size that takes seconds."""

from pathlib import Path
from typing import Any

from conftest import shipped_params
from small_clip import SPEC
from tallmasks.models.families import load
from tallmasks.store.tensor_files import open_tensors
from tallmasks.tasks.drawn import TASKS
from tallmasks.training.tiny_pretraining import pretrain_tiny


def test_pretraining_is_repeatable(tmp_path: Path) -> None:
    """Nobody could make the shipped file again, or its model would not know the tasks' words."""
    recipe = shipped_params()["models"]["tiny"]["pretraining"]
    small = {**recipe, "images": 64, "steps": 3, "batch_size": 16, "captions": 20, "warmup_steps": 2}
    spec: dict[str, Any] = {**SPEC, "pretraining": small}
    for name in ("first", "again"):
        pretrain_tiny(spec, tmp_path / name, processes=1)
    first, again = open_tensors(tmp_path / "first"), open_tensors(tmp_path / "again")
    assert again.metadata == first.metadata  # safetensors writes it in any order
    assert again.names == first.names
    assert all(again.read(name).tobytes() == first.read(name).tobytes() for name in first.names)
    model = load(spec, tmp_path / "first")
    assert all(model.head(task).shape[0] == len(task.classes) for task in TASKS.values())
