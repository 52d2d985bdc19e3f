"""The options that say on which labelled texts or images a model is evaluated, and its outputs for their labels."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from reproduction.models.classifiers.settings import class_names_of
from reproduction.models.foreign_weights import json_of
from reproduction.tasks.vision.own_images import OwnImageTask, known_name
from tallmasks.cli.options import by_name, number, whole_number
from tallmasks.errors import OptionError, TallmasksError, counted, short, warn

TEXTS, IMAGES = "texts", "images"
LONGEST = 512
_CLASSES = {TEXTS: "ForSequenceClassification", IMAGES: "ForImageClassification"}
"""The ends of the names of transformers' classes."""
_ONLY_FOR = {TEXTS: ("text", "max_tokens"), IMAGES: ("image",)}


def add_data(parser: argparse.ArgumentParser, kind: Callable[[str], Any], metavar: str, whose: str) -> None:
    """``whose``: what has data of its own, "model" or "task"."""
    for option, what in ((TEXTS, "file of labelled texts"), (IMAGES, "folder or file of labelled images")):
        help = f"{what}; repeat for each {whose}"
        parser.add_argument(f"--{option}", type=kind, action="append", default=[], metavar=metavar, help=help)
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts (default: text)")
    parser.add_argument(
        "--image", metavar="COLUMN", help="column of the images (default: image) or of their paths (file_name)"
    )
    parser.add_argument("--label", default="label", metavar="COLUMN", help="column of the labels (default: label)")
    parser.add_argument(
        "--fractions",
        type=number,
        nargs=2,
        default=[0.4, 0.4],
        metavar=("VALIDATION", "TEST"),
        help="fractions of each class's texts or images (default: 0.4 0.4)",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole_number,
        metavar="N",
        help=f"cut texts to N tokens; give the length used in training (default: {LONGEST}, or the model's positions)",
    )


def data_of(arguments: argparse.Namespace) -> tuple[str, dict[Any, str]]:
    """`TEXTS` or `IMAGES`, and their paths by name.  Raises OptionError for both, or options of the other kind."""
    if arguments.texts and arguments.images:
        raise OptionError("found --texts and --images; expected one of them: a table has one kind of models")
    kind, other = (IMAGES, TEXTS) if arguments.images else (TEXTS, IMAGES)
    if odd := [option for option in _ONLY_FOR[other] if getattr(arguments, option) is not None]:
        raise OptionError(f"--{odd[0].replace('_', '-')}: is only for --{other}; remove it")
    return kind, by_name(f"--{kind}", getattr(arguments, kind))


def entry_of(arguments: argparse.Namespace, kind: str, path: str, config: Path) -> dict[str, Any]:
    """The entry under `data` in params.yaml for a file or folder. ``config``: the config.json of its model.

    Raises TallmasksError for a model of the other kind.
    """
    other = IMAGES if kind == TEXTS else TEXTS
    if any(str(name).endswith(_CLASSES[other]) for name in json_of(config).get("architectures") or ()):
        raise TallmasksError(f"{config}: found a classifier of {other}; expected --{other}, or a classifier of {kind}")
    validation, test = arguments.fractions
    if min(validation, test) <= 0 or validation + test >= 1:
        raise OptionError(
            f"--fractions: found {validation:g} {test:g}; expected two numbers above 0 with a sum below 1"
        )
    columns = {"text": arguments.text or "text"} if kind == TEXTS else {}
    if arguments.image:
        columns["image"] = arguments.image
    entry: dict[str, Any] = {"files" if kind == TEXTS else IMAGES: path, **columns, "label": arguments.label}
    if kind == IMAGES and (names := class_names_of(config)):
        entry["classes"] = names
    return entry | {"fractions": {"validation": validation, "test": test}}


def image_labels(name: str, config: Path, task: OwnImageTask) -> list[str]:
    """The labels of images, in the spelling of the model's class names; warns if they are numbers."""
    names, labels = class_names_of(config), list(task.settings["labels"])
    if not names and all(label.isdecimal() for label in labels):
        warn(f"{task.sources['data']}: its numbers are taken as those of the outputs of {config}, from 0", name)
    return [known_name(label, names) for label in labels]


def outputs_of(config: Path, examples: str, labels: Collection[str]) -> dict[str, int]:
    """The model's output for each label, which is a class name of config.json, or a number from 0; empty if config.json
    has no class names, but the labels are names.

    ``labels``: those of the file ``examples``.  Raises TallmasksError for a head that is not for one of several
    classes, or does not have the labels.
    """
    content, names = json_of(config), class_names_of(config)
    if (kind := content.get("problem_type")) not in (None, "single_label_classification"):
        raise TallmasksError(f"{config}: problem_type: found {short(kind)}, expected one label for each example")
    named = [len(content[key]) for key in ("id2label", "label2id") if isinstance(content.get(key), dict)]
    numbered = (content.get("num_labels"), content.get("num_classes"), 2)  # timm's name; transformers' default
    count = next(size for size in (*named, *numbered) if isinstance(size, int))
    numbers = list(map(str, range(count)))
    for forms in (names, numbers, [f"LABEL_{index}" for index in numbers]):
        if count > 1 and {*labels} <= {*forms} and len({*forms}) == count:
            return {label: output for output, label in enumerate(forms)}
    known = names or all(re.fullmatch(r"(LABEL_)?\d+", label) for label in labels)
    odd = [label for label in labels if label not in (*names, *numbers)]
    fits = len(labels) == count or (known and (len(labels) < count or (names and len(odd) < len(labels))))
    if count < 2 or not fits:
        raise TallmasksError(
            f"{config}: found a head with {counted(count, 'output')}, but {examples} has {len(labels)} different "
            "labels; expected a model that was trained for these labels"
        )
    if known:
        expected = f"{', '.join(map(short, names[:20]))}, or " if names else ""
        raise TallmasksError(
            f"{examples}: found the label {short([*odd, *labels][0])}, which the model does not have; expected "
            f"{expected}the numbers 0 to {count - 1}, in the order of the outputs of {config}"
        )
    return {}
