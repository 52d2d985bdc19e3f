"""The text datasets in small, as their files are on the hub, with a few rows made up here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features
from pyarrow import csv

from reproduction.tasks.text import TASKS
from reproduction.tasks.text.text_files import _CSV_NAMES

MARKED = {
    "paws": "sentence1", "story_cloze": "input_sentence_1", "winogrande": "sentence", "wsc": "text",
    "cosmos_qa": "context", "quail": "context", "ropes": "situation", "social_iqa": "context",
}  # fmt: skip
"""The column in which a row says which one it is; of the others `question`."""


NUMBERS = {
    "trec": "coarse_label",
    "cosmos_qa": "label",
    "quail": "correct_answer_id",
    "story_cloze": "answer_right_ending",
}
"""Columns of whole numbers of 32 bits; others have 64."""
RIGHT: dict[str, tuple[str, Callable[[int], int | str]]] = {
    **dict.fromkeys(("paws", "wiki_qa", "wsc"), ("label", lambda index: index % 2)),
    "cosmos_qa": ("label", lambda index: index % 4),
    "quail": ("correct_answer_id", lambda index: index % 4),
    "winogrande": ("answer", lambda index: str(index % 2 + 1)),
    "story_cloze": ("answer_right_ending", lambda index: index % 2 + 1),
    "social_iqa": ("label", lambda index: str(index % 3 + 1)),
}
"""The column of the right answer, and what it says in row after row."""


def made_up(task: str, index: int, split: str = "train", choices: int | None = None) -> dict[str, Any]:
    """A row that says in one of its texts which one it is, and whose right answer moves from choice to choice.

    With `choices`, lists of choices end after so many.
    """
    row = dict(TASKS[task].row)
    column = MARKED.get(task, TASKS[task].texts[0] if TASKS[task].texts else "question")
    row[column] = f"{row[column].rstrip('.?')} {split} {index}."
    if "answerKey" in row:
        row["choices"] = {name: values[:choices] for name, values in row["choices"].items()}
        labels = row["choices"]["label"]
        row["answerKey"] = labels[index % len(labels)]
    elif TASKS[task].texts:
        row[NUMBERS.get(task, "label")] = index % len(TASKS[task].classes)
    elif task in RIGHT:
        column, right = RIGHT[task]
        row[column] = right(index)
    return row


LABELS = {"paws": ["0", "1"], "wiki_qa": ["0", "1"], "wsc": ["False", "True"]}
"""The names of labels that are of a type of their own."""


def table(task: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with the dataset's features in the metadata, and with a column that no prompt needs."""
    made = pa.Table.from_pylist([{**row, "more": "x"} for row in rows])
    fields = [one.with_type(pa.int32()) if one.name == NUMBERS.get(task) else one for one in made.schema]
    made = made.cast(pa.schema(fields))
    features = Features.from_arrow_schema(made.schema)
    if task in LABELS:
        features["label"] = ClassLabel(names=LABELS[task])
    return made.replace_schema_metadata(features.arrow_schema.metadata)


def write_repository(folder: Path, task: str, counts: Mapping[str, int], choices: int | None = None) -> None:
    """A dataset's repository in small, by how many rows its training and test files have; the first in two shards."""
    named = {"train": "default/train", "test": "default/validation"}
    for part, pattern in TASKS[task].source.files.items():
        rows = [made_up(task, index, part, choices) for index in range(counts[part])]
        if pattern.endswith(".jsonl"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / pattern).write_text("".join(json.dumps(row) + "\n" for row in rows))
            continue
        if pattern.endswith(".csv"):
            write_csv(folder / pattern.replace("*", " - all"), rows)
            continue
        half = len(rows) // 2 if part == "train" else 0
        shards = [rows[:half], rows[half:]] if half else [rows]
        for number, shard in enumerate(shards):
            name = f"{number:05d}-of-{len(shards):05d}"
            path = folder / (f"{named[part]}-{name}.parquet" if pattern[0] == "*" else pattern.replace("*", name))
            if "*" not in pattern and number < len(shards) - 1:
                continue  # one file
            shard = rows if "*" not in pattern else shard
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table(task, shard), path)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Story Cloze as its authors give it out."""
    names = {ours: theirs for theirs, ours in _CSV_NAMES.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(table("story_cloze", rows).select(list(names)).rename_columns(list(names.values())), path)


def cached_repository(cache: Path, task: str, commit: str) -> Path:
    """Where the hub cache keeps a commit of a task's dataset."""
    return cache / f"datasets--{TASKS[task].source.hub.replace('/', '--')}" / "snapshots" / commit
