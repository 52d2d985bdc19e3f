"""The methods of `reproduction.models.families.Family` that all language models share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproduction.models.checkpoint_sources import Publisher
from reproduction.models.families import ModelParams
from reproduction.models.language.text_scoring import MARKS, Scoring
from reproduction.tasks.task import Task
from reproduction.tasks.texts import Texts, open_texts


class TextFamily:
    unit = "questions"
    task_inputs: tuple[str, ...] = ()
    publishers: Mapping[str, Publisher] = {}

    def settings(self, spec: ModelParams) -> dict[str, Any]:
        scoring = Scoring.of(spec)
        settings = {"scoring": asdict(scoring), "further_scores": list(MARKS)}
        return settings if scoring.counts else settings | {"sums_of_scores": True}

    def training_settings(self, spec: ModelParams, task: Task, validates: bool) -> dict[str, Any]:
        used = ["max_input_tokens"]
        if validates:
            used += ["free_answers", "max_new_tokens"] if task.writes_answers else ["length_normalized"]
        scoring = asdict(Scoring.of(spec))
        return {"scoring": {key: scoring[key] for key in used}}

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> Texts:
        return open_texts(path)
