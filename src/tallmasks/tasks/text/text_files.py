"""From a text dataset's files to the rows of a split: Parquet as on the hub, Story Cloze's CSV as it is given out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tallmasks.errors import TallmasksError
from tallmasks.tasks.dataset_files import Files, from_folder, from_hub, missing_from_hub, reading
from tallmasks.tasks.task import Split, published_part
from tallmasks.tasks.text.rendering import Row
from tallmasks.tasks.text.text_tasks import TextTask

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1000  # rows made into Python's objects
_CSV_NAMES = {
    **{f"InputSentence{n}": f"input_sentence_{n}" for n in (1, 2, 3, 4)},
    "RandomFifthSentenceQuiz1": "sentence_quiz1",
    "RandomFifthSentenceQuiz2": "sentence_quiz2",
    "AnswerRightEnding": "answer_right_ending",
}


@dataclass(frozen=True)
class Rows:
    """The rows of one split: their columns, the place of the first in the published split, and notes for the user."""

    table: pa.Table
    start: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), AT_ONCE):
            yield from self.table.slice(start, AT_ONCE).to_pylist()


def locate_texts(task: TextTask, split: Split, folder: Path | None = None) -> Files:
    """The files that a split is made from: in a local folder, in this machine's hub cache, or downloaded.

    Raises TallmasksError where they cannot be had, or not all of them.
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
    """The message if a task's files need a local folder; None if all is well."""
    return on_request(task) if task.ask else missing_from_hub(task.name, task.source, "Parquet files")


def on_request(task: TextTask) -> str:
    """The message about data that nobody may pass on."""
    return (
        f"{task.name}: the data of {task.title} are given out by their authors: ask for them at {task.ask}, put "
        f"{' and '.join(task.source.files.values())} into a folder, and name it as data.{task.name}.path in params.yaml"
    )


def read_rows(task: TextTask, split: Split, files: Files, limit: int | None = None) -> Rows:
    """The rows of a split, or the first `limit` of them.

    Raises TallmasksError where a column or a value is missing, a file is damaged, or there are not enough rows.
    """
    import pyarrow as pa

    table = pa.concat_tables([_read(task, path) for path in files.paths])
    part, rows = published_part(split), table.num_rows
    counted = f"{rows} {task.published[part]} rows, expected {task.counts[part]}"
    notes = () if rows == task.counts[part] else (counted,)
    start = rows - task.held_out if split == "validation" else 0
    end = rows - task.held_out if split == "train" else rows
    if start < 0 or end <= start:
        needed = "" if split == "test" else f"; more than {task.held_out} are needed, the last ones for validation"
        raise TallmasksError(f"{files.origin}: {task.name}: {counted}{needed}")
    table = table.slice(start, end - start if limit is None else min(limit, end - start))
    for column in table.column_names:
        if table[column].null_count:
            place = start + table[column].is_null().index(True).as_py()
            raise TallmasksError(f"{files.origin}: {task.name}: row {place} has nothing in the column {column}")
    return Rows(table, start, notes)


def _read(task: TextTask, path: Path) -> pa.Table:
    """The columns of one file that the task needs, as their kinds have them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(task.name, path, "Parquet"):
        table = _read_csv(path) if path.suffix == ".csv" else pq.ParquetFile(path).read()
    names = table.column_names
    if absent := [name for name in task.columns if name not in names]:
        raise TallmasksError(
            f"{path}: {task.name}: no column {', '.join(absent)}; found {', '.join(names)}. These are not the "
            f"data of {task.title}, or not in its own schema"
        )
    texts = pa.list_(pa.string())
    types = {"text": pa.string(), "number": pa.int64(), "texts": texts, "answers": pa.struct({"text": texts})}
    types["choices"] = pa.struct({"text": texts, "label": texts})
    columns = {}
    for name, kind in task.columns.items():
        try:
            columns[name] = table[name].cast(types[kind])
        except pa.ArrowException:
            raise TallmasksError(
                f"{path}: {task.name}: the column {name} holds {table[name].type}, expected {types[kind]}"
            ) from None
    return pa.table(columns)


def _read_csv(path: Path) -> pa.Table:
    """A file of Story Cloze as its authors give it out, with the hub's names for its columns."""
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
