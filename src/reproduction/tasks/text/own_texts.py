"""Your own labelled texts: one file with a column of texts and a column of labels.

params.yaml declares them under `data`: `support: {files: tickets.csv, text: body, label: queue}`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.tasks.catalogues import Params
from reproduction.tasks.own_data import (
    FORMATS,
    FRACTIONS,
    check_splits,
    divided,
    hash_order,
    label_order,
    read_columns,
    repeated,
)
from reproduction.tasks.task import SPLITS, Task
from reproduction.tasks.texts import PAIR, Text, joined
from tallmasks.errors import TallmasksError, counted, short, warn
from tallmasks.io.file_digests import named_path

TEMPLATES = ("A text about {}.",)


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


def examples_of(task: str, file: Path, settings: Mapping[str, Any], split: str, limit: int | None = None) -> list[Text]:
    """The texts of one split, in the order of the file; with more than ``limit``, a sample by a hash of the text."""
    classes = tuple(settings["classes"])
    number_of = {label: number for number, label in enumerate(settings.get("labels", classes))}
    rows = [(text, label) for text, label, part in _rows(task, file, settings) if part == split]
    numbers = sorted(range(len(rows)), key=lambda number: hash_order(settings["seed"], rows[number][0]))
    chosen = sorted(numbers[:limit])
    return [Text(rows[number][0], classes, number_of[rows[number][1]]) for number in chosen]


def evaluated_texts(
    task: str, entry: Mapping[str, Any], split: str, outputs_of: Callable[[Collection[str]], Mapping[str, int]]
) -> list[Text]:
    """The texts of one split of a file, or of the whole file if ``split`` is "all".

    ``entry``: as under `data` in params.yaml; ``outputs_of``: the model's output for each label.

    Raises TallmasksError if the file or a column is missing, or it has no texts of the split.
    """
    file = named_path(Path(), entry["files"])
    _refuse_no_file(task, file)
    rows = list(_rows(task, file, {**entry, "text": [entry["text"]], "split": None, "seed": 0}))
    outputs = outputs_of(sorted({label for _, label, _ in rows}, key=label_order))
    texts = [Text(text, tuple(outputs), outputs[label]) for text, label, part in rows if split in ("all", part)]
    if not texts:
        raise TallmasksError(f"{file}: found no texts; expected a row for each text")
    return texts


def _checked(task: str, file: Path, settings: Mapping[str, Any]) -> list[str]:
    """The labels in their order.  Raises TallmasksError as `own_text_tasks`."""
    _refuse_no_file(task, file)
    stat = file.stat()
    return _labels(task, file, json.dumps(settings), (stat.st_ino, stat.st_size, stat.st_mtime_ns))


def _refuse_no_file(task: str, file: Path) -> None:
    if not file.is_file():
        found = "is a folder" if file.is_dir() else "no such file"
        raise TallmasksError(f"{file}: {found}; expected the labelled texts of {task}, {FORMATS}")


@functools.lru_cache(maxsize=64)  # each plan asks several times
def _labels(task: str, file: Path, settings_json: str, _identity: tuple[int, ...]) -> list[str]:
    settings = json.loads(settings_json)
    rows = list(_rows(task, file, settings))
    counts = {label for _, label, _ in rows}
    if len(counts) < 2:
        raise TallmasksError(
            f"{file}: column {settings['label']!r}: found {counted(len(counts), 'class')}, expected at least two"
        )
    texts, labels, parts = zip(*rows, strict=True)
    check_splits(file, "text", labels, parts)
    if found := repeated(file, "text", [" ".join(text.split()) for text in texts], parts):
        warn(found, task)
    return sorted(counts, key=label_order)


def _rows(task: str, file: Path, settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Text, label and split of every row."""
    columns, label, split = settings["text"], settings["label"], settings["split"]
    table = read_columns(task, file, list(dict.fromkeys([*columns, label, *([split] if split else [])])))
    texts = [joined(*row) for row in zip(*(table[column] for column in columns), strict=True)]
    labels = [value.strip() for value in table[label]]
    for what, values in (("text", [text.replace(PAIR, " ").strip() for text in texts]), ("label", labels)):
        if "" in values:
            raise TallmasksError(f"{file}: row {values.index('') + 1}: the {what} is empty; add it, or remove the row")
    if split:
        parts = table[split]
    else:  # texts that differ in their white space only are in the same split
        contents = [" ".join(text.split()) for text in texts]
        parts = divided(contents, labels, settings["fractions"], settings["seed"])
    for row, part in enumerate(parts, 1):
        if part not in SPLITS:
            raise TallmasksError(
                f"{file}: row {row}, column {split!r}: found {short(part)}, expected one of {', '.join(SPLITS)}"
            )
    return zip(texts, labels, parts, strict=True)
