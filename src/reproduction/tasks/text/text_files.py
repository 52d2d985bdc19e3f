"""Reads the rows of a split from Parquet files, or from Story Cloze's CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reproduction.tasks.dataset_files import Files, from_folder, from_hub, missing_from_hub, reading
from reproduction.tasks.task import Split, published_part
from reproduction.tasks.text.rendering import Row
from reproduction.tasks.text.text_tasks import TextTask
from tallmasks.errors import TallmasksError

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1000  # rows converted to Python objects
SHUFFLED = 0
"""Seed of the order of a classification task's rows; part of recipes."""
_CSV_NAMES = {
    **{f"InputSentence{n}": f"input_sentence_{n}" for n in (1, 2, 3, 4)},
    "RandomFifthSentenceQuiz1": "sentence_quiz1",
    "RandomFifthSentenceQuiz2": "sentence_quiz2",
    "AnswerRightEnding": "answer_right_ending",
}


@dataclass(frozen=True)
class Rows:
    """The rows of one split.

    Attributes:
        start: the index of the first one in the published split.
        order: int64 [N], the index of each row in the published split, if they were shuffled; otherwise None.
    """

    table: pa.Table
    start: int
    notes: tuple[str, ...]
    order: NDArray[np.int64] | None = None

    def number(self, index: int) -> int:
        """The index of a row in the published split."""
        return self.start + index if self.order is None else int(self.order[index])

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), AT_ONCE):
            yield from self.table.slice(start, AT_ONCE).to_pylist()


def locate_texts(task: TextTask, split: Split, folder: Path | None = None) -> Files:
    """The files of a split, from a local folder, the hub cache or the hub.

    Raises TallmasksError if files are unavailable or incomplete.
    """
    part = published_part(split)
    if folder is None:
        if task.ask:
            raise TallmasksError(on_request(task))
        return from_hub(task.name, task.source, part, "Parquet files")
    name, pattern = task.published[part], task.source.files[part]
    patterns = (pattern, f"**/{pattern}", f"**/{name}*.parquet", f"**/{name}/*.parquet")
    expected = f"{pattern}{'' if task.ask else ' as on the hub'} or {name}*.parquet"
    return from_folder(task.name, name, folder, patterns, expected)


def missing_texts(task: TextTask) -> str | None:
    """An error message if a task's files are unavailable here, else None."""
    return on_request(task) if task.ask else missing_from_hub(task.name, task.source, "Parquet files")


def on_request(task: TextTask) -> str:
    """The error message for data that may not be redistributed."""
    return (
        f"{task.name}: the authors of {task.title} send the data on request: ask at {task.ask}, put "
        f"{' and '.join(task.source.files.values())} into a folder, and set data.{task.name}.path in params.yaml to it"
    )


def read_rows(task: TextTask, split: Split, files: Files, limit: int | None = None) -> Rows:
    """The rows of a split, or the first `limit` of them.

    Raises TallmasksError if a column, a value or rows are missing, or a file is damaged.
    """
    import pyarrow as pa

    table = pa.concat_tables([_read(task, path) for path in files.paths])
    part, rows = published_part(split), table.num_rows
    counted = f"{rows} {task.published[part]} rows, expected {task.counts[part]}"
    notes = () if rows == task.counts[part] else (counted,)
    start = rows - task.held_out if split == "validation" else 0
    end = rows - task.held_out if split == "train" else rows
    if start < 0 or end <= start:
        needed = "" if split == "test" else f"; more than {task.held_out} are needed (the last ones for validation)"
        raise TallmasksError(f"{files.origin}: {task.name}: {counted}{needed}")
    count = end - start if limit is None else min(limit, end - start)
    order = None
    if task.texts:
        order = np.random.RandomState(SHUFFLED).permutation(rows)[start : start + count]  # its stream never changes
        table = table.take(order)
    else:
        table = table.slice(start, count)
    found = Rows(table, start, notes, order)
    for column in table.column_names:
        if table[column].null_count:
            place = found.number(table[column].is_null().index(True).as_py())
            raise TallmasksError(f"{files.origin}: {task.name}: row {place} has no value in the column {column}")
    return found


def _read(task: TextTask, path: Path) -> pa.Table:
    """The task's columns of one file, cast to their declared types."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import json

    with reading(task.name, path, "Parquet"):
        if path.suffix == ".csv":
            table = _read_csv(path)
        else:
            table = json.read_json(path) if path.suffix == ".jsonl" else pq.ParquetFile(path).read()
    names = table.column_names
    if absent := [name for name in task.columns if name not in names]:
        raise TallmasksError(
            f"{path}: {task.name}: no column {', '.join(absent)}; found {', '.join(names)}. Expected the data of "
            f"{task.title} with the published columns"
        )
    texts = pa.list_(pa.string())
    types = {
        "text": pa.string(),
        "number": pa.int64(),
        "texts": texts,
        "choices": pa.struct({"text": texts, "label": texts}),
        "answers": pa.struct({"text": texts}),
    }
    columns = {}
    for name, kind in task.columns.items():
        try:
            columns[name] = table[name].cast(types[kind])
        except pa.ArrowException:
            raise TallmasksError(
                f"{path}: {task.name}: the column {name} has the type {table[name].type}, expected {types[kind]}"
            ) from None
    return pa.table(columns)


def _read_csv(path: Path) -> pa.Table:
    """A CSV file of Story Cloze, with its columns renamed as on the hub."""
    import pyarrow as pa
    from pyarrow import csv

    table = csv.read_csv(
        path,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in _CSV_NAMES if name != "AnswerRightEnding"}
        ),
    )
    return table.rename_columns([_CSV_NAMES.get(name, name) for name in table.column_names])
