"""A catalogue of the paper's 11 language tasks and a family without a network: enough for plans, not for jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallmasks.results.reference import BENCHMARKS
from tallmasks.tasks.catalogues import ExamplesRecipe
from tallmasks.tasks.task import Task
from toys.numbers_toy import Directions, Linear

MEMBERS = {name: sorted(tasks) for tasks, name in BENCHMARKS.items() if not name.endswith("tasks")}
MODEL: dict[str, Any] = {
    "family": "toys.words_toy",
    "tasks": "toys.words_toy",
    "pretrained": {"hub": "google/t5-large-lm-adapt", "file": "model.safetensors", "revision": "1" * 40},
    "architecture": {"d_model": 32, "dropout_rate": 0.1},
    "scoring": {
        "length_normalized": False, "free_answers": "exact_match", "max_input_tokens": 512, "max_new_tokens": 64,
    },
    "finetuning": {
        "iterations": 5000, "batch_size": 1024, "learning_rate": 1e-4, "schedule": "constant",
        "weight_decay": 0.0, "epsilon": 1e-8, "precision": "bfloat16", "validate_every": 100, "patience": 5,
    },
    "evaluation": {"batch_size": 64, "precision": "float32"},
    "resources": {
        step: {"threads": 1, "gpu": int(step != "arrays"), "mem_mb": 500, "runtime": 5}
        for step in ("arrays", "evaluation", "finetuning")
    },
}  # fmt: skip
"""An entry of params.yaml."""


class Words(Directions):
    """The catalogue."""

    def tasks(self, params: Mapping[str, Any]) -> Mapping[str, Task]:
        return {name: Task(name, ("a", "b"), (), "words") for name in MEMBERS["11nlp"]}

    def recipe(self, params: Any, model: Any, task: str, split: str, root: Path) -> ExamplesRecipe:
        return ExamplesRecipe({"task": task, "split": split})


class Reader(Linear):
    """The family."""

    unit = "questions"

    def check(self, name: str, spec: Mapping[str, Any]) -> None:
        pass

    def settings(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        return {"scoring": dict(spec["scoring"])}


CATALOGUE = Words()
FAMILY = Reader()
