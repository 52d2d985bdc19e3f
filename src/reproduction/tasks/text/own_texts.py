"""Your own labelled texts: one file with a column of texts and a column of labels.

params.yaml declares them under `data`: `support: {files: tickets.csv, text: body, label: queue}`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.tasks.catalogues import Params
from reproduction.tasks.task import SPLITS, Task
from reproduction.tasks.texts import PAIR, Text, joined
from tallmasks.errors import TallmasksError, counted, nearest, short, warn
from tallmasks.io.file_digests import named_path

if TYPE_CHECKING:
    import pyarrow as pa

FRACTIONS = {"validation": 0.1, "test": 0.2}
TEMPLATES = ("A text about {}.",)
FORMATS = ".csv, .tsv, .jsonl (one object per line) or .parquet"
BLOCK = 1 << 26  # bytes of a CSV file that are read at once; the longest text


@dataclass(frozen=True)
class OwnTextTask(Task):
    """A task of `data` in params.yaml.

    Attributes:
        settings: what determines the examples, besides the file: its columns, and how it is split; ``labels``: the
            labels in the file, in the order of the classes, if they are numbers instead of class names.
    """

    file: Path
    settings: Mapping[str, Any]


def own_text_tasks(params: Params) -> dict[str, OwnTextTask]:
    """The tasks of `data` with a file of labelled texts.

    Raises TallmasksError if a file or a column is missing, a text or label is empty, or a class has too few texts.
    """
    entries = {name: entry for name, entry in params.get("data", {}).items() if "files" in entry}
    return {name: _task(name, entry) for name, entry in entries.items()}


def _task(name: str, entry: Mapping[str, Any]) -> OwnTextTask:
    columns = entry["text"] if isinstance(entry["text"], list) else [entry["text"]]
    settings = {
        "text": columns,
        "label": entry["label"],
        "split": entry.get("split"),
        "fractions": {**FRACTIONS, **entry.get("fractions", {})},
        "seed": entry.get("seed", 0),
        "edition": 4,  # raise it when the same file and settings give other examples
    }
    file = named_path(Path(), entry["files"])
    labels = _checked(name, file, settings)
    classes = tuple(map(str.strip, entry.get("classes", labels)))
    settings["classes"] = list(classes)
    if sorted(labels) != sorted(classes):
        if labels != [str(number) for number in range(len(classes))] or len({*classes}) < len(classes):
            raise TallmasksError(
                f"params.yaml: data.{name}.classes: found {', '.join(map(short, classes[:20]))}, but {file} has the "
                f"labels {', '.join(map(short, labels[:20]))}; list every label of the file once, or use all of the "
                f"numbers 0 to {len(classes) - 1} as labels in the file"
            )
        settings["labels"] = labels
    templates = tuple(entry.get("templates", TEMPLATES))
    return OwnTextTask(name, classes, templates, f"texts of {file.name}", file, settings)


def _numbers_as_such(label: str) -> tuple[list[str | int], int, str]:
    """Sorts "LABEL_10" behind "LABEL_9", and "-1" before "0"."""
    if re.fullmatch(r"-?\d+", label):
        return [], int(label), label
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", label)], 0, label


def examples_of(task: str, file: Path, settings: Mapping[str, Any], split: str, limit: int | None = None) -> list[Text]:
    """The texts of one split, in the order of the file; with more than ``limit``, a sample by a hash of the text."""
    classes = tuple(settings["classes"])
    number_of = {label: number for number, label in enumerate(settings.get("labels", classes))}
    rows = [(text, label) for text, label, part in _rows(task, file, settings) if part == split]
    numbers = sorted(range(len(rows)), key=lambda number: _order(settings["seed"], rows[number][0]))
    chosen = sorted(numbers[:limit])
    return [Text(rows[number][0], classes, number_of[rows[number][1]]) for number in chosen]


def evaluated_texts(task: str, entry: Mapping[str, Any], split: str) -> list[Text]:
    """The texts of one split of a file, or of the whole file if ``split`` is "all".

    ``entry``: as under `data` in params.yaml.  Raises TallmasksError as `own_text_tasks`; the whole file may lack
    classes.
    """
    if split != "all":
        of_table = own_text_tasks({"data": {task: entry}})[task]
        return examples_of(task, of_table.file, of_table.settings, split)
    file = named_path(Path(), entry["files"])
    if not file.is_file():
        raise TallmasksError(f"{file}: no such file; correct the path")
    settings = {"text": [entry["text"]], "label": entry["label"], "split": None, "fractions": {}, "seed": 0}
    rows = [(text, label) for text, label, _ in _rows(task, file, settings)]
    labels = sorted({label for _, label in rows}, key=_numbers_as_such)
    if not rows:
        raise TallmasksError(f"{file}: found no texts; expected a row for each text")
    classes = tuple(entry.get("classes", labels))
    number_of = {name: number for number, name in enumerate(classes)}
    if not number_of.keys() >= {*labels}:
        number_of = {str(number): number for number in range(len(classes))}
    if odd := [label for label in labels if label not in number_of]:
        raise TallmasksError(
            f"{file}: found the label {short(odd[0])}, which the model does not have; expected {', '.join(classes)}, "
            f"or the numbers 0 to {len(classes) - 1}"
        )
    return [Text(text, classes, number_of[label]) for text, label in rows]


def _checked(task: str, file: Path, settings: Mapping[str, Any]) -> list[str]:
    """The labels in their order.  Raises TallmasksError as `own_text_tasks`."""
    if not file.is_file():
        raise TallmasksError(f"params.yaml: data.{task}.files: {file}: no such file; correct the path")
    stat = file.stat()
    return _labels(task, file, json.dumps(settings), (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(maxsize=64)  # each plan asks several times
def _labels(task: str, file: Path, settings_json: str, _identity: tuple[int, ...]) -> list[str]:
    settings = json.loads(settings_json)
    rows = list(_rows(task, file, settings))
    counts = Counter(label for _, label, _ in rows)
    if len(counts) < 2:
        raise TallmasksError(
            f"{file}: column {settings['label']!r}: found {counted(len(counts), 'class')}, expected at least two"
        )
    parts_of_class, parts_of_text = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for text, label, part in rows:
        parts_of_class[label].add(part)
        parts_of_text[" ".join(text.split())].add(part)
    for label, parts in sorted(parts_of_class.items()):
        if missing := [part for part in SPLITS if part not in parts]:
            raise TallmasksError(
                f"{file}: class {short(label)}: found {counted(counts[label], 'text')}, and none for "
                f"{' and '.join(missing)}; expected at least one text of every class for each of {', '.join(SPLITS)}. "
                "Add texts, or remove the class"
            )
    if twice := sum(len(parts) > 1 for parts in parts_of_text.values()):
        warn(f"{file}: {counted(twice, 'text')} in more than one split, so the accuracy can be too high", task)
    return sorted(counts, key=_numbers_as_such)


def _rows(task: str, file: Path, settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Text, label and split of every row."""
    columns, label, split = settings["text"], settings["label"], settings["split"]
    table = _read(task, file, list(dict.fromkeys([*columns, label, *([split] if split else [])])))
    texts = [joined(*row) for row in zip(*(table[column] for column in columns), strict=True)]
    labels = [value.strip() for value in table[label]]
    for what, values in (("text", [text.replace(PAIR, " ").strip() for text in texts]), ("label", labels)):
        if "" in values:
            raise TallmasksError(f"{file}: row {values.index('') + 1}: the {what} is empty; add it, or remove the row")
    parts = table[split] if split else _parts(texts, labels, settings["fractions"], settings["seed"])
    for row, part in enumerate(parts, 1):
        if part not in SPLITS:
            raise TallmasksError(
                f"{file}: row {row}, column {split!r}: found {short(part)}, expected one of {', '.join(SPLITS)}"
            )
    return zip(texts, labels, parts, strict=True)


def _parts(texts: Sequence[str], labels: Sequence[str], fractions: Mapping[str, float], seed: int) -> list[str]:
    """The split of each text: a fraction of every class, at least one text, by a hash of seed and text.

    Equal texts are in the same split, whatever their white space.
    """
    texts = [" ".join(text.split()) for text in texts]
    by_class: dict[str, set[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        by_class.setdefault(label, set()).add(text)
    part_of: dict[str, str] = {}
    for of_class in by_class.values():
        ordered = sorted(of_class, key=lambda text: _order(seed, text))
        start = 0
        for part, fraction in fractions.items():
            count = max(1, round(fraction * len(ordered)))
            for text in ordered[start : start + count]:
                part_of.setdefault(text, part)
            start += count
    return [part_of.get(text, "train") for text in texts]


def _order(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed} {text}".encode()).digest()


def _read(task: str, file: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """The values of some columns as strings; missing values are empty."""
    import pyarrow as pa

    try:
        names, table = _table(file, columns)
        for column in columns:
            if names.count(column) != 1:
                raise TallmasksError(
                    f"{file}: found {names.count(column)} columns {column!r}{nearest(column, names)}; found "
                    f"{', '.join(names[:20])}; expected the columns of data.{task} in params.yaml, each once"
                )
        values = {column: [value or "" for value in table[column].cast(pa.string()).to_pylist()] for column in columns}
        if file.suffix == ".tsv" and any(re.fullmatch('".*"', value) for texts in values.values() for value in texts):
            raise ValueError("in a .tsv file, quotation marks around a text can belong to it; save it as .csv")
    except (OSError, ValueError, TypeError, AttributeError) as error:  # Arrow's are of these
        raise TallmasksError(
            f"{file}: cannot be read as {file.suffix}: {' '.join(str(error).split())[:200]}; expected {FORMATS}, in "
            "UTF-8, with columns of strings or numbers"
        ) from None
    return values


def _table(file: Path, columns: Sequence[str]) -> tuple[list[str], pa.Table]:
    """The names of all columns, and a table with those of ``columns`` that the file has."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if file.suffix in (".csv", ".tsv"):
        layout: Any = (
            {"newlines_in_values": True} if file.suffix == ".csv" else {"delimiter": "\t", "quote_char": False}
        )
        parsing, reading = csv.ParseOptions(**layout), csv.ReadOptions(block_size=BLOCK)
        names = csv.open_csv(file, reading, parsing).schema.names
        present = [column for column in columns if column in names]
        converting = csv.ConvertOptions(include_columns=present, column_types=dict.fromkeys(present, pa.string()))
        return names, csv.read_csv(file, reading, parsing, converting)
    if file.suffix == ".parquet":
        content = parquet.ParquetFile(file)
        names = content.schema_arrow.names
        return names, content.read([column for column in columns if column in names])
    if file.suffix not in (".jsonl", ".json"):
        raise ValueError("another format")
    found, values = dict[str, None](), {column: list[Any]() for column in columns}
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):  # Arrow's reader of JSON takes texts for dates
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
                found |= dict.fromkeys(row)
                for column, of_column in values.items():
                    of_column.append(row.get(column))
    return list(found), pa.table(values)
