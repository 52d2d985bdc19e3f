"""Options shared by `tallmasks merge` and `tallmasks compress`, and settings from options, a file or Python."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.commands.options import DTYPE_ALIASES, OptionError, number_by_task, one_of, pair
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.plain_files import expanded

if TYPE_CHECKING:
    from tallmasks.commands.merge_settings import Settings  # its libraries are slow to import

BY_TASK = ("mask_lambda", "weight", "density")
"""Settings for all tasks or for one."""
NUMBER_BY_TASK: dict[str, Any] = {
    "type": number_by_task, "action": "append", "default": [], "metavar": "[NAME=]VALUE"
}  # fmt: skip


def add_arguments(
    parser: argparse.ArgumentParser, default_method: str | None, methods: Iterable[str], dtypes: Collection[str]
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
        help="mask threshold for all tasks, or NAME=VALUE for one (default: 0.4)",
    )
    output.add_argument("-o", "--output", metavar="OUT", help="new file or folder")
    output.add_argument(
        "--dtype",
        type=one_of(dtypes, DTYPE_ALIASES),
        help=f"dtype of the stored values: {', '.join(dtypes)} (default: the checkpoints')",
    )
    output.add_argument("--dry-run", action="store_true", help="show what would be read and written, and its size")
    return groups


def new_path(text: str) -> Path:
    """Expand `~` in the path of a new file or folder. Raises TallmasksError if the name is not valid."""
    path = Path(expanded(text))
    try:
        with suppress(FileNotFoundError):
            path.lstat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise TallmasksError(f"-o {text:.100}: {reason}; expected the path of a new file or folder") from None
    return path


def read_settings(arguments: argparse.Namespace, default_method: str | None, dtypes: Collection[str]) -> Settings:
    """Combine the command line with the YAML file.

    Raises TallmasksError for settings that are missing, repeated, unknown or of the wrong type.
    """
    from tallmasks.commands.merge_settings import KEYS, read_settings_file

    values = read_settings_file(arguments.file, arguments.base, dtypes) if arguments.file else {}
    if arguments.base is not None:
        values.pop("base_sha256", None)
    tasks, named = values.setdefault("tasks", {}), set()
    for name, checkpoint in arguments.task:
        if name in named:
            raise OptionError(f"--task {name}=...: the name {name} is used twice; give each model its own name")
        named.add(name)
        from_file = {key: value for key, value in tasks.get(name, {}).items() if key != "sha256"}
        tasks[name] = {**from_file, "checkpoint": checkpoint}
    values["options"] = {**values.get("options", {}), **dict(arguments.option)}
    for setting in BY_TASK:
        for task, value in getattr(arguments, setting, []):
            (values if task is None else _task_settings(tasks, task, setting))[setting] = value
    for name, value in vars(arguments).items():
        if name in KEYS and name not in BY_TASK and value is not None:
            values[name] = value
    return _complete({"method": default_method, **values}, dtypes)


def from_python(base: Any, tasks: Mapping[str, Any], out: Any, dtypes: Collection[str], **settings: Any) -> Settings:
    """The settings from a function's arguments, which can be `Path`s, torch dtypes and mappings by task."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise TallmasksError(f"tasks: found {type(tasks).__name__}, expected a mapping such as {{'cars': './cars'}}")
    values = {name: value for name, value in settings.items() if value is not None}
    named = {str(name): {"checkpoint": checkpoint} for name, checkpoint in tasks.items()}
    for setting in BY_TASK:
        if isinstance(values.get(setting), Mapping):
            for name, value in values.pop(setting).items():
                _task_settings(named, name, setting)[setting] = value
    if "dtype" in values:
        values["dtype"] = str(values["dtype"]).removeprefix("torch.")
    if isinstance(values.get("heads"), bool) and values.pop("heads"):
        values["heads"] = []
    return _complete({**values, "base": base, "tasks": named, "output": out}, dtypes)


def _task_settings(tasks: dict[str, dict[str, Any]], name: str, setting: str) -> dict[str, Any]:
    if name not in tasks:
        option = f"--{setting.replace('_', '-')}"
        raise TallmasksError(f"{option} {name}=...: there is no task {name!r}{nearest(name, tasks)}")
    return tasks[name]


def _complete(values: dict[str, Any], dtypes: Collection[str]) -> Settings:
    from tallmasks.commands.merge_settings import checked_settings

    tasks = values["tasks"]
    if values.get("method") == "weight_averaging" and tasks and not values.get("base"):
        values["base"] = next(iter(tasks.values()))["checkpoint"]  # the mean does not depend on the base
    options = {"base": "--base BASE", "tasks": "--task NAME=CHECKPOINT", "method": "--method METHOD"}
    for name, option in {**options, "output": "-o OUT"}.items():
        if not values.get(name):
            raise OptionError(f"{option} is missing")
    return checked_settings({**values, "output": new_path(str(values["output"]))}, "arguments", dtypes)
