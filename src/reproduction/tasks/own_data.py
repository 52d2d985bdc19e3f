"""Labelled texts and images of one's own: tables with a column of labels, and splits by a hash of the content."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.tasks.task import SPLITS
from tallmasks.errors import TallmasksError, counted, nearest, short

if TYPE_CHECKING:
    import pyarrow as pa

FRACTIONS = {"validation": 0.1, "test": 0.2}
FORMATS = ".csv, .tsv, .jsonl (one object per line) or .parquet"
BLOCK = 1 << 26  # bytes of a CSV file that are read at once; the longest text


def label_order(label: str) -> tuple[list[str | int], int, str]:
    """Sorts "LABEL_10" behind "LABEL_9", and "-1" before "0"."""
    if re.fullmatch(r"-?\d+", label):
        return [], int(label), label
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", label)], 0, label


def hash_order(seed: int, content: str) -> bytes:
    """A random order of contents that depends on nothing else."""
    return hashlib.sha256(f"{seed} {content}".encode()).digest()


def divided(contents: Sequence[str], labels: Sequence[str], fractions: Mapping[str, float], seed: int) -> list[str]:
    """The split of each example: a fraction of every class, at least one example, by a hash of seed and content; the
    rest is "train".  Equal contents are in the same split."""
    by_class: dict[str, set[str]] = {}
    for content, label in zip(contents, labels, strict=True):
        by_class.setdefault(label, set()).add(content)
    part_of: dict[str, str] = {}
    for of_class in by_class.values():
        ordered = sorted(of_class, key=lambda content: hash_order(seed, content))
        start = 0
        for part, fraction in fractions.items():
            count = max(1, round(fraction * len(ordered)))
            for content in ordered[start : start + count]:
                part_of.setdefault(content, part)
            start += count
    return [part_of.get(content, "train") for content in contents]


def check_splits(file: Path, noun: str, labels: Sequence[str], parts: Sequence[str]) -> None:
    """Raise TallmasksError if a class has no example in one of the splits. ``noun``: an example, "text" or "image"."""
    counts, parts_of = Counter(labels), defaultdict[str, set[str]](set)
    for label, part in zip(labels, parts, strict=True):
        parts_of[label].add(part)
    for label, of_class in sorted(parts_of.items()):
        if missing := [part for part in SPLITS if part not in of_class]:
            raise TallmasksError(
                f"{file}: class {short(label)}: found {counted(counts[label], noun)}, and none for "
                f"{' and '.join(missing)}; expected at least one {noun} of every class for each of "
                f"{', '.join(SPLITS)}. Add {noun}s, or remove the class"
            )


def repeated(file: Path, noun: str, contents: Sequence[str], parts: Sequence[str]) -> str:
    """A warning if contents are in several splits; else empty."""
    parts_of = defaultdict[str, set[str]](set)
    for content, part in zip(contents, parts, strict=True):
        parts_of[content].add(part)
    twice = sum(len(of_content) > 1 for of_content in parts_of.values())
    return f"{file}: {counted(twice, noun)} in more than one split, so the accuracy can be too high" if twice else ""


def read_columns(task: str, file: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """The values of some columns as strings; missing values are empty.

    Raises TallmasksError if the file has another format, or not each column once.
    """
    import pyarrow as pa

    try:
        suffix = file.suffix.lower()
        names, table = _table(file, suffix, columns)
        for column in columns:
            if names.count(column) != 1:
                raise TallmasksError(
                    f"{file}: found {names.count(column)} columns {column!r}{nearest(column, names)}; found "
                    f"{', '.join(names[:20])}; expected each column once. --text, --image and --label, or "
                    f"data.{task} in params.yaml, name the columns"
                )
        values = {column: [value or "" for value in table[column].cast(pa.string()).to_pylist()] for column in columns}
        if suffix == ".tsv" and any(re.fullmatch('".*"', value) for texts in values.values() for value in texts):
            raise ValueError("in a .tsv file, quotation marks around a text can belong to it; save it as .csv")
    except TallmasksError:
        raise
    except Exception as error:  # of Arrow, JSON or Python, by what is wrong with the file
        raise TallmasksError(
            f"{file}: cannot be read as {file.suffix}: {' '.join(str(error).split())[:200]}; expected {FORMATS}, in "
            "UTF-8, with columns of strings or numbers"
        ) from None
    return values


def _table(file: Path, suffix: str, columns: Sequence[str]) -> tuple[list[str], pa.Table]:
    """The names of all columns, and a table with those of ``columns`` that the file has."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if suffix in (".csv", ".tsv"):
        layout: Any = {"newlines_in_values": True} if suffix == ".csv" else {"delimiter": "\t", "quote_char": False}
        parsing, reading = csv.ParseOptions(**layout), csv.ReadOptions(block_size=BLOCK)
        names = csv.open_csv(file, reading, parsing).schema.names
        present = [column for column in columns if column in names]
        converting = csv.ConvertOptions(include_columns=present, column_types=dict.fromkeys(present, pa.string()))
        return names, csv.read_csv(file, reading, parsing, converting)
    if suffix == ".parquet":
        content = parquet.ParquetFile(file)
        names = content.schema_arrow.names
        return names, content.read([column for column in columns if column in names])
    if suffix not in (".jsonl", ".json"):
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
