"""Options shared by `tallmasks merge` and `tallmasks compress`, and settings from options and a file."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.cli.options import by_name, number, number_by_task, pair, whole_number
from tallmasks.errors import OptionError
from tallmasks.io.plain_files import expanded

if TYPE_CHECKING:
    from tallmasks.operations.choosing import Choice
    from tallmasks.operations.merge_settings import Settings  # its libraries are slow to import

NEXT = 'next: "Your fine-tuned models" in the documentation shows how to evaluate, serve and publish it'
NUMBER_BY_TASK: dict[str, Any] = {
    "type": number_by_task, "action": "append", "default": [], "metavar": "[NAME=]VALUE"
}  # fmt: skip

AS_LORA: dict[str, Any] = {
    "type": whole_number, "metavar": "RANK",
    "help": "write a PEFT LoRA of at most this rank instead of the model: exact for LoRAs whose ranks sum up to RANK or"
    " less",
}  # fmt: skip


BUNDLES_BASE: dict[str, Any] = {
    "type": expanded,
    "help": "pretrained model: a file, a folder, or a repository (default: the one that the bundle names)",
}


def add_arguments(
    parser: argparse.ArgumentParser,
    default_method: str | None,
    methods: Iterable[str],
    default_lambda: str = "0.4",
    chosen: str = "scaling_coefficient=0.2,0.4,0.6",
    words: str = "{} (the model)",
) -> tuple[argparse._ArgumentGroup, ...]:
    """Add the options of both commands. Returns the groups of inputs, method and output."""
    groups = inputs, method, output = tuple(map(parser.add_argument_group, ("inputs", "method", "output")))
    inputs.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE.yaml",
        help="read options from a YAML file; command-line options override it",
    )
    inputs.add_argument("--base", help="pretrained model: a file, a folder, or a repository ORG/NAME[@REVISION]")
    inputs.add_argument(
        "--task",
        type=pair("NAME=CHECKPOINT", "cars=./cars"),
        action="append",
        default=[],
        metavar="NAME=CHECKPOINT",
        help="fine-tuned model, and a name for it; repeat for each model",
    )
    inputs.add_argument(
        "--keep-base",
        action="append",
        metavar="PATTERN",
        help="keep the base's values for tensors whose names match, for example 'embed*'",
    )
    default = f"(default: {default_method})" if default_method else "(required)"
    method.add_argument("--method", help=f"one of {', '.join(methods)} {default}")
    method.add_argument(
        "--option",
        type=pair("KEY=VALUE", "keep=0.1"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the method, for example keep=0.1; `tallmasks methods NAME` lists them",
    )
    method.add_argument(
        "--mask-lambda",
        **NUMBER_BY_TASK,
        help=f"mask threshold for all tasks, or NAME=VALUE for one (default: {default_lambda})",
    )
    choice = parser.add_argument_group("choice by a score of your own")
    choice.add_argument(
        "--choose",
        type=pair("KEY=VALUE,VALUE", chosen),
        action="append",
        default=[],
        metavar="KEY=VALUE,VALUE,...",
        help=f"values to try, for example {chosen}; repeated, all combinations",
    )
    choice.add_argument(
        "--score", metavar="COMMAND", help=f"run for each candidate, with {words} replaced; its last line is the score"
    )
    choice.add_argument("--smaller", action="store_true", help="the smallest score is the best (default: the largest)")
    choice.add_argument("--score-timeout", type=number, metavar="SECONDS", help="stop if COMMAND takes longer")
    output.add_argument("-o", "--output", metavar="OUT", help="new file or folder")
    output.add_argument("--dry-run", action="store_true", help="show what would be read and written, and its size")
    return groups


def read_choice(arguments: argparse.Namespace, needed: str) -> Choice | None:
    """The choice; ``needed``: words that the command must have. Raises OptionError if an option is missing."""
    from tallmasks.operations.choosing import choice_of

    grid = by_name("--choose", arguments.choose)
    if arguments.dry_run and grid:
        raise OptionError("--dry-run: nothing can be scored without a model; leave out --choose")
    return choice_of(grid, arguments.score, arguments.smaller, arguments.score_timeout, needed)


def read_settings(arguments: argparse.Namespace, default_method: str | None, unsupported: Collection[str]) -> Settings:
    """Combine the command line with the YAML file; ``unsupported``: settings of the other command.

    Raises TallmasksError for settings that are missing, repeated, unknown or of the wrong type. A dry run needs no
    output.
    """
    from tallmasks.operations.merge_settings import BY_TASK, KEYS, complete, read_settings_file, task_settings

    values = read_settings_file(arguments.file, arguments.base, unsupported) if arguments.file else {}
    if arguments.base is not None:
        values.pop("base_sha256", None)
    tasks = values.setdefault("tasks", {})
    for name, checkpoint in by_name("--task", arguments.task).items():
        from_file = {key: value for key, value in tasks.get(name, {}).items() if key != "sha256"}
        tasks[name] = {**from_file, "checkpoint": checkpoint}
    values["options"] = {**values.get("options", {}), **by_name("--option", arguments.option)}
    for setting in BY_TASK:
        option = f"--{setting.replace('_', '-')}"
        for task, value in by_name(option, getattr(arguments, setting, [])).items():
            (values if task is None else task_settings(tasks, task, setting))[setting] = value
    for name, value in vars(arguments).items():
        if name in KEYS and name not in BY_TASK and value is not None:
            values[name] = value
    return complete({"method": default_method, **values}, needs_output=not arguments.dry_run)
