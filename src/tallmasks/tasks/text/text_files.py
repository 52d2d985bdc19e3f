"""From a text dataset's files to the rows of a split: Parquet as on the hub, Story Cloze's CSV as it is given out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.store.errors import TallmasksError
from tallmasks.tasks.dataset_files import Files, from_hub, in_folder, listed, missing_from_hub, refuse_part
from tallmasks.tasks.text.rendering import Row
from tallmasks.tasks.text.text_tasks import Kind, Split, TextTask

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1000  # rows made into Python's objects
_CSV_NAMES = {
    **{f"InputSentence{n}": f"input_sentence_{n}" for n in (1, 2, 3, 4)},
    "RandomFifthSentenceQuiz1": "sentence_quiz1",
    "RandomFifthSentenceQuiz2": "sentence_quiz2",
    "AnswerRightEnding": "answer_right_ending",
}
_WORDS: dict[Kind, str] = {
    "text": "a text",
    "number": "a whole number",
    "numeral": "a text or a whole number",
    "texts": "a list of texts",
    "choices": "a struct of the lists of texts text and label",
    "answers": "a struct of the list of texts text",
}


@dataclass(frozen=True)
class Rows:
    """The rows of one split, and what a user should know of the files that they are from.

    Attributes:
        table: The columns that the task needs.
        start: The place of the first row in the published split.
        notes: What is not as expected.
    """

    table: pa.Table
    start: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), AT_ONCE):
            yield from self.table.slice(start, AT_ONCE).to_pylist()


def locate_texts(task: TextTask, split: Split, folder: Path | None = None) -> Files:
    """Find the files that a split is made from in a local folder, in this machine's hub cache or on the hub.

    Raises:
        TallmasksError: The files are not there, not all there, or cannot be downloaded.
    """
    part = "test" if split == "test" else "train"
    if folder is None:
        if task.ask:
            raise TallmasksError(on_request(task))
        return from_hub(task.name, task.source, part, _instead_of_the_hub(task.name))
    name, pattern = task.published[part], task.source.files[part]
    paths = in_folder(folder, (pattern, f"**/{pattern}", f"**/{name}*.parquet", f"**/{name}/*.parquet"))
    if not paths or (len(paths) > 1 and paths[0].suffix == ".csv"):
        found = "several: " + ", ".join(path.name for path in paths) if paths else listed(folder)
        raise TallmasksError(
            f"{folder}: no {name} data of {task.name} (found: {found}); data.{task.name}.path in params.yaml names it. "
            f"Expected {pattern}{'' if task.ask else ' as on the hub'} or {name}*.parquet."
        )
    refuse_part(task.name, name, str(folder), [path.name for path in paths])
    return Files(paths, str(folder), None)


def missing_texts(task: TextTask) -> str | None:
    """What to say if a task's files cannot be had without a local folder; None if all is well."""
    return on_request(task) if task.ask else missing_from_hub(task.name, task.source, _instead_of_the_hub(task.name))


def on_request(task: TextTask) -> str:
    """What to say of data that nobody may pass on."""
    return (
        f"{task.name}: the data of {task.title} are given out by their authors: ask for them at {task.ask}, put "
        f"{' and '.join(task.source.files.values())} into a folder, and name it as data.{task.name}.path in params.yaml"
    )


def _instead_of_the_hub(task: str) -> str:
    return f"Or have a local folder of Parquet files, and name it as data.{task}.path in params.yaml."


def read_rows(task: TextTask, split: Split, files: Files, limit: int | None = None) -> Rows:
    """Read a split.

    Args:
        task: The task; training and validation data share its "train" files, of which validation takes the last rows.
        split: Which split.
        files: Where `locate_texts` found them.
        limit: How many of the split's rows, from its first; None for all.

    Raises:
        TallmasksError: A column is missing or holds something else, a value is missing, a file is damaged, or there are
            not enough rows.
    """
    import pyarrow as pa

    try:
        table = pa.concat_tables([_read(task, path) for path in files.paths])
    except (OSError, ValueError) as error:  # Arrow's errors are of these two
        said = " ".join(str(error).split())
        raise TallmasksError(
            f"{files.origin}: {task.name}: a data file is damaged or of another layout ({said}). Expected Parquet; "
            "delete it and get it again."
        ) from error
    part = "test" if split == "test" else "train"
    rows = table.num_rows
    found = f"{rows} {task.published[part]} rows, expected {task.counts[part]}"
    notes = () if rows == task.counts[part] else (found,)
    start, end = {"train": (0, rows - task.held_out), "validation": (rows - task.held_out, rows), "test": (0, rows)}[
        split
    ]
    if start < 0 or end <= start:
        needed = "" if split == "test" else f"; more than {task.held_out} are needed, the last ones for validation"
        raise TallmasksError(f"{files.origin}: {task.name}: {found}{needed}")
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

    opened = _read_csv(path) if path.suffix == ".csv" else pq.ParquetFile(path)
    schema = opened.schema if isinstance(opened, pa.Table) else opened.schema_arrow
    if absent := [name for name in task.columns if name not in schema.names]:
        raise TallmasksError(
            f"{path}: {task.name}: no column {', '.join(absent)}; found {', '.join(schema.names)}. These are not the "
            f"data of {task.title}, or not in its own schema"
        )
    for name, kind in task.columns.items():
        if not _fits(schema.field(name).type, kind):
            raise TallmasksError(
                f"{path}: {task.name}: the column {name} holds {schema.field(name).type}, expected {_WORDS[kind]}"
            )
    columns = list(task.columns)
    table = opened.select(columns) if isinstance(opened, pa.Table) else opened.read(columns).select(columns)
    for place, (name, kind) in enumerate(task.columns.items()):
        if kind in ("number", "numeral"):
            table = table.set_column(place, name, table[name].cast(pa.int64() if kind == "number" else pa.string()))
    return table


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


def _fits(found: pa.DataType, kind: Kind) -> bool:
    """Whether a column of a type can hold what is expected."""
    if kind == "text":
        return _is_text(found)
    if kind in ("number", "numeral"):
        return _is_number(found) or (kind == "numeral" and _is_text(found))
    if kind == "texts":
        return _is_texts(found)
    inside: Sequence[str] = ("text", "label") if kind == "choices" else ("text",)
    return _is_struct(found) and all(
        found.get_field_index(name) >= 0 and _is_texts(found.field(name).type) for name in inside
    )


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def _is_number(found: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(found) or pa.types.is_boolean(found))


def _is_texts(found: Any) -> bool:
    import pyarrow as pa

    return bool((pa.types.is_list(found) or pa.types.is_large_list(found)) and _is_text(found.value_type))


def _is_struct(found: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(found))
