"""Your own labelled texts: one file with a column of texts and a column of labels.

params.yaml declares them under `data`: `support: {files: tickets.csv, text: body, label: queue}`.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reproduction.tasks.catalogues import Params
from reproduction.tasks.task import SPLITS, Task
from reproduction.tasks.texts import PAIR, Text, joined
from tallmasks.errors import TallmasksError, counted, nearest, short, warn
from tallmasks.io.file_digests import named_path
from tallmasks.io.plain_files import open_plain

if TYPE_CHECKING:
    import pyarrow as pa

FRACTIONS = {"validation": 0.1, "test": 0.2}
TEMPLATES = ("A text about {}.",)
FORMATS = ".csv, .tsv, .jsonl (one object per line) or .parquet"
SEPARATORS = {".csv": ",", ".tsv": "\t"}


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
    if repeated := [known for known, count in Counter(classes).items() if count > 1]:
        raise TallmasksError(f"params.yaml: data.{name}.classes: {short(repeated[0])} listed twice; list each once")
    settings["classes"] = list(classes)
    numbers = [str(number) for number in range(len(classes))]
    if set(labels) < set(numbers) and set(numbers).isdisjoint(classes):
        absent = min(set(numbers) - set(labels), key=int)
        raise TallmasksError(
            f"{file}: column {entry['label']!r}: found no {absent}, which stands for {classes[int(absent)]}; expected "
            "at least one text of every class"
        )
    if set(labels) == set(numbers) != set(classes):
        settings["labels"] = labels
    elif odd := sorted(set(labels) ^ set(classes)):
        source = "file" if odd[0] in labels else "list"
        raise TallmasksError(
            f"params.yaml: data.{name}.classes: {short(odd[0])} is only in the {source}; list every label of the file "
            f"once, or use the numbers 0 to {len(classes) - 1} as labels in the file"
        )
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


def _checked(task: str, file: Path, settings: Mapping[str, Any]) -> list[str]:
    """The labels in their order.  Raises TallmasksError as `own_text_tasks`."""
    try:
        stat = file.stat()
    except OSError:
        raise TallmasksError(f"params.yaml: data.{task}.files: {file}: no such file; correct the path") from None
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
        warn(f"{file}: {counted(twice, 'text')} in more than one split: the accuracy on them says little", task)
    return sorted(counts, key=_numbers_as_such)


def _rows(task: str, file: Path, settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Text, label and split of every row."""
    columns, label, split = settings["text"], settings["label"], settings["split"]
    table = _read(task, file, [*columns, label, *([split] if split else [])])
    texts = [joined(*row) for row in zip(*(table[column] for column in columns), strict=True)]
    for row, (text, own) in enumerate(zip(texts, table[label], strict=True), 1):
        for what, value in (("text", text.replace(PAIR, " ").strip()), ("label", own.strip())):
            if not value:
                raise TallmasksError(f"{file}: row {row}: the {what} is empty; add it, or remove the row")
    labels = [own.strip() for own in table[label]]
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
    for own in by_class.values():
        ordered = sorted(own, key=lambda text: _order(seed, text))
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
        names, table = _table(task, file, columns)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError, csv.Error) as error:  # Arrow's are of these
        raise TallmasksError(
            f"{file}: cannot be read as {file.suffix}: {' '.join(str(error).split())[:200]}; expected {FORMATS}, in "
            "UTF-8"
        ) from None
    for column in columns:
        if names.count(column) > 1:
            raise TallmasksError(
                f"{file}: found {names.count(column)} columns {column!r}, expected one; rename the others"
            )
        if column not in names:
            one = f", separated by {SEPARATORS[file.suffix]!r}" if len(names) == 1 and file.suffix in SEPARATORS else ""
            raise TallmasksError(
                f"{file}: found no column {column!r}{nearest(column, names)}; found "
                f"{', '.join(names[:20]) or 'nothing'}; expected the columns of data.{task} in params.yaml{one}"
            )
    try:
        strings = {column: table[column].cast(pa.string()) for column in columns}
    except pa.ArrowException:
        kinds = ", ".join(f"{column} ({table[column].type})" for column in columns)
        raise TallmasksError(f"{file}: found {kinds}; expected columns of strings or numbers") from None
    return {
        column: ["" if value is None else value for value in array.to_pylist()] for column, array in strings.items()
    }


def _table(task: str, file: Path, columns: Sequence[str]) -> tuple[list[str], pa.Table]:
    """The names of all columns, and a table with those of ``columns`` that the file has."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    with open_plain(file) as content:
        if file.suffix == ".parquet":
            parquet = pq.ParquetFile(content)
            names = parquet.schema_arrow.names
            return names, parquet.read(columns=[column for column in columns if column in names])
        lines = io.TextIOWrapper(content, "utf-8-sig", newline="")
        if file.suffix in SEPARATORS:
            names, values = _separated(file, lines, columns)
        elif file.suffix in (".jsonl", ".json"):
            names, values = _objects(lines, columns)
        else:
            raise TallmasksError(f"params.yaml: data.{task}.files: found {file.name}, expected {FORMATS}")
        return names, pa.table(values)


def _separated(file: Path, lines: Iterable[str], columns: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    csv.field_size_limit(1 << 30)
    plain = file.suffix == ".tsv" and _has_plain_quotes(file)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    rows = filter(None, csv.reader(lines, delimiter=SEPARATORS[file.suffix], quoting=quoting))  # without empty lines
    names = next(rows, [])
    values: dict[str, list[str]] = {column: [] for column in columns if column in names}
    places = [(names.index(column), own) for column, own in values.items()]
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(f"row {number} has {counted(len(row), 'column')}, the first line {len(names)}")
        for place, own in places:
            own.append(row[place])
    return names, values


def _has_plain_quotes(file: Path) -> bool:
    """Whether a quotation mark in a .tsv file is part of its text, as in GLUE's files, and does not begin a quoted
    text, which can have several lines."""
    unpaired, lengths = False, set()
    with file.open(encoding="utf-8-sig") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if fields != [""]:
                unpaired |= any(field.startswith('"') and (field == '"' or not field.endswith('"')) for field in fields)
                lengths.add(len(fields))
    return unpaired and len(lengths) == 1


def _objects(lines: Iterable[str], columns: Sequence[str]) -> tuple[list[str], dict[str, list[Any]]]:
    names, values = dict[str, None](), {column: list[Any]() for column in columns}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_row)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}: {error.msg}") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not a JSON object")
        names |= dict.fromkeys(row)
        for column, own in values.items():
            own.append(row.get(column))
    return list(names), values


def _row(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
        raise ValueError(f"a line has {twice[0]!r} twice")
    return dict(pairs)
