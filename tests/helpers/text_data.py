"""The 11 text datasets in small, as their files are on the hub: columns, types, and a few rows made up here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features
from pyarrow import csv

from tallmasks.tasks.text import TASKS

TEXT, WHOLE, TEXTS = pa.string(), pa.int64(), pa.list_(pa.string())
CHOICES = pa.struct({"text": TEXTS, "label": TEXTS})
SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "qasc": {
        **dict.fromkeys(("id", "question"), TEXT),
        "choices": CHOICES,
        **dict.fromkeys(("answerKey", "fact1", "fact2", "combinedfact", "formatted_question"), TEXT),
    },
    "quartz": {
        "id": TEXT,
        "question": TEXT,
        "choices": CHOICES,
        **dict.fromkeys(("answerKey", "para", "para_id"), TEXT),
        "question_anno": pa.struct({"more_effect_dir": TEXT, "less_cause_prop": TEXT}),
    },
    "paws": {"id": pa.int32(), "sentence1": TEXT, "sentence2": TEXT, "label": WHOLE},
    "story_cloze": {
        "story_id": TEXT,
        **{f"input_sentence_{n}": TEXT for n in (1, 2, 3, 4)},
        "sentence_quiz1": TEXT,
        "sentence_quiz2": TEXT,
        "answer_right_ending": pa.int32(),
    },
    "wiki_qa": {"question_id": TEXT, "question": TEXT, "document_title": TEXT, "answer": TEXT, "label": WHOLE},
    "winogrande": dict.fromkeys(("sentence", "option1", "option2", "answer"), TEXT),
    "wsc": {
        "text": TEXT,
        "span1_index": pa.int32(),
        "span2_index": pa.int32(),
        "span1_text": TEXT,
        "span2_text": TEXT,
        "idx": pa.int32(),
        "label": WHOLE,
    },
    "cosmos_qa": {
        **dict.fromkeys(("id", "context", "question", "answer0", "answer1", "answer2", "answer3"), TEXT),
        "label": pa.int32(),
    },
    "quail": {
        **dict.fromkeys(("id", "context_id", "question_id", "domain"), TEXT),
        "metadata": pa.struct({"author": TEXT, "title": TEXT, "url": TEXT}),
        **dict.fromkeys(("context", "question", "question_type"), TEXT),
        "answers": TEXTS,
        "correct_answer_id": pa.int32(),
    },
    "ropes": {
        **dict.fromkeys(("id", "background", "situation", "question"), TEXT),
        "answers": pa.struct({"text": TEXTS}),
    },
    "social_iqa": dict.fromkeys(("context", "question", "answerA", "answerB", "answerC", "label"), TEXT),
}
MARKED = {
    "paws": "sentence1", "story_cloze": "input_sentence_1", "winogrande": "sentence", "wsc": "text",
    "cosmos_qa": "context", "quail": "context", "ropes": "situation", "social_iqa": "context",
}  # fmt: skip
"""The column in which a row says which one it is; of the others `question`."""


def made_up(task: str, index: int, split: str = "train", choices: int | None = None) -> dict[str, Any]:
    """A row that says in one of its texts which one it is, and whose right answer moves from choice to choice.

    With `choices`, lists of choices end after so many.
    """
    row = dict(TASKS[task].row)
    if choices and "answerKey" in row:
        row["choices"] = {name: values[:choices] for name, values in row["choices"].items()}
    column = MARKED.get(task, "question")
    row[column] = f"{row[column].rstrip('.?')} {split} {index}."
    if "answerKey" in row:
        labels = row["choices"]["label"]
        row["answerKey"] = labels[index % len(labels)]
    elif task in ("paws", "wiki_qa", "wsc"):
        row["label"] = index % 2
    elif task == "cosmos_qa":
        row["label"] = index % 4
    elif task == "quail":
        row["correct_answer_id"] = index % 4
    elif task == "winogrande":
        row["answer"] = str(index % 2 + 1)
    elif task == "story_cloze":
        row["answer_right_ending"] = index % 2 + 1
    elif task == "social_iqa":
        row["label"] = str(index % 3 + 1)
    return row


LABELS = {"paws": ["0", "1"], "wiki_qa": ["0", "1"], "wsc": ["False", "True"]}
"""The names of labels that are of a type of their own."""


def table(task: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in the dataset's own schema, with its features in the metadata; what no prompt needs is filled somehow."""
    schema = SCHEMAS[task]
    columns = {}
    for name, kind in schema.items():
        filler: Any = "x" if kind == TEXT else 0 if pa.types.is_integer(kind) else None
        columns[name] = pa.array([row.get(name, filler) for row in rows], kind)
    made = pa.table(columns)
    features = Features.from_arrow_schema(made.schema)
    if task in LABELS:
        features["label"] = ClassLabel(names=LABELS[task])
    return made.replace_schema_metadata(features.arrow_schema.metadata)


def write_repository(folder: Path, task: str, counts: Mapping[str, int], choices: int | None = None) -> None:
    """A dataset's repository in small, by how many rows its training and test files have; the first in two shards."""
    named = {"train": "default/train", "test": "default/validation"}
    for part, pattern in TASKS[task].source.files.items():
        rows = [made_up(task, index, part, choices) for index in range(counts[part])]
        if pattern.endswith(".csv"):
            write_csv(folder / pattern.replace("*", " - all"), rows)
            continue
        half = len(rows) // 2 if part == "train" else 0
        shards = [rows[:half], rows[half:]] if half else [rows]
        for number, shard in enumerate(shards):
            name = f"{number:05d}-of-{len(shards):05d}"
            path = folder / (f"{named[part]}-{name}.parquet" if pattern[0] == "*" else pattern.replace("*", name))
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table(task, shard), path)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Story Cloze as its authors give it out."""
    names = [
        "InputStoryid",
        *(f"InputSentence{n}" for n in (1, 2, 3, 4)),
        "RandomFifthSentenceQuiz1",
        "RandomFifthSentenceQuiz2",
        "AnswerRightEnding",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(table("story_cloze", rows).rename_columns(names), path)


def cached_repository(cache: Path, task: str, commit: str) -> Path:
    """Where the hub cache keeps a commit of a task's dataset."""
    return cache / f"datasets--{TASKS[task].source.hub.replace('/', '--')}" / "snapshots" / commit
