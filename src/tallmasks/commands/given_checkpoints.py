"""The options that `tallmasks merge` and `tallmasks compress` share, and how these, a file and Python give settings."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.plain_files import expanded

if TYPE_CHECKING:
    from tallmasks.commands.models_file import Given  # whose libraries take long to import

BY_TASK = ("mask_lambda", "weight", "density")
"""What is set for all tasks, or by task."""


def add_arguments(
    parser: argparse.ArgumentParser, default_method: str | None, methods: Iterable[str], dtypes: Collection[str]
) -> None:
    """The options that both commands have; ``methods`` and ``dtypes`` are what ``--method`` and ``--dtype`` take."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.yaml", help="the same from a file; options win")
    parser.add_argument("--base", help="the pretrained model: a file, a folder, or a repository ORG/NAME[@REVISION]")
    parser.add_argument(
        "--task", action="append", default=[], metavar="NAME=CHECKPOINT", help="a fine-tuned model of it, and its name"
    )
    parser.add_argument("--method", help=f"{default_method or 'required'}; one of {', '.join(methods)}")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the method: keep=0.1")
    parser.add_argument(
        "--mask-lambda", action="append", default=[], metavar="[NAME=]VALUE", help="of every task, or of one; 0.4"
    )
    parser.add_argument("--dtype", choices=dtypes, help="what is stored")
    parser.add_argument(
        "--keep-base",
        action="append",
        metavar="PATTERN",
        help="tensors of such names, 'embed*', are the base's, and are not counted",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be read and written, and how large")
    parser.add_argument("-o", "--output", metavar="OUT", help="a new file or folder")


def new_path(text: str) -> Path:
    """The path of something new, `~` expanded.  Raises TallmasksError where nothing can have such a name."""
    path = Path(expanded(text))
    try:
        with suppress(FileNotFoundError):
            path.lstat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise TallmasksError(f"-o {text:.100}: {reason}; expected the path of a new file or folder") from None
    return path


def read_settings(arguments: argparse.Namespace, default_method: str | None, dtypes: Collection[str]) -> Given:
    """What the command line and the file say together.

    Raises TallmasksError where something is missing, said twice, unknown or not of its kind.
    """
    from tallmasks.commands.models_file import KEYS, read_models_file

    values = read_models_file(arguments.file, arguments.base, dtypes) if arguments.file else {}
    if arguments.base is not None:
        values.pop("base_sha256", None)
    tasks, named = values.setdefault("tasks", {}), set()
    for text in arguments.task:
        name, equals, checkpoint = text.partition("=")
        if not (name and equals and checkpoint):
            raise TallmasksError(f"--task {text}: expected NAME=CHECKPOINT, cars=./cars for instance")
        if name in named:
            raise TallmasksError(f"--task {name}=...: the task {name} is named twice; every task has one checkpoint")
        named.add(name)
        of_file = {key: value for key, value in tasks.get(name, {}).items() if key != "sha256"}
        tasks[name] = {**of_file, "checkpoint": checkpoint}
    for text in arguments.option:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise TallmasksError(f"--option {text}: expected KEY=VALUE, keep=0.1 for instance")
        values.setdefault("options", {})[name] = value
    for setting in BY_TASK:
        for text in getattr(arguments, setting, []):
            name, equals, value = text.rpartition("=")
            target = _task_of(tasks, name, setting) if equals else values
            try:
                target[setting] = float(value)
            except ValueError:
                option = f"--{setting.replace('_', '-')}"
                raise TallmasksError(f"{option} {text}: found {value!r:.100}, expected a number") from None
    for name, value in vars(arguments).items():
        if name in KEYS and name not in BY_TASK and value is not None:
            values[name] = value
    return _complete({"method": default_method, **values}, dtypes)


def from_python(base: Any, tasks: Mapping[str, Any], out: Any, dtypes: Collection[str], **settings: Any) -> Given:
    """The same from a function's arguments: paths may be `Path`, a dtype torch's; what is by task may be a mapping."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise TallmasksError(f"tasks: found {type(tasks).__name__}; expected checkpoints by task, {{'cars': './cars'}}")
    values = {name: value for name, value in settings.items() if value is not None}
    named = {str(name): {"checkpoint": checkpoint} for name, checkpoint in tasks.items()}
    for setting in BY_TASK:
        if isinstance(values.get(setting), Mapping):
            for name, value in values.pop(setting).items():
                _task_of(named, name, setting)[setting] = value
    if "dtype" in values:
        values["dtype"] = str(values["dtype"]).removeprefix("torch.")
    if isinstance(values.get("heads"), bool) and values.pop("heads"):
        values["heads"] = []
    return _complete({**values, "base": base, "tasks": named, "output": out}, dtypes)


def _task_of(tasks: dict[str, dict[str, Any]], name: str, setting: str) -> dict[str, Any]:
    """The settings of one task.  Raises TallmasksError where there is no such task."""
    if name not in tasks:
        option = f"--{setting.replace('_', '-')}"
        raise TallmasksError(f"{option} {name}=...: there is no task {name!r}{nearest(name, tasks)}")
    return tasks[name]


def _complete(values: dict[str, Any], dtypes: Collection[str]) -> Given:
    """The settings.  Raises TallmasksError where something is missing, or not of its kind."""
    from tallmasks.commands.models_file import checked_settings

    tasks = values["tasks"]
    if values.get("method") == "weight_averaging" and tasks and not values.get("base"):
        values["base"] = next(iter(tasks.values()))["checkpoint"]  # what lies between models is the same from any base
    options = {"base": "--base BASE", "tasks": "--task NAME=CHECKPOINT", "method": "--method METHOD"}
    for name, option in {**options, "output": "-o OUT"}.items():
        if not values.get(name):
            raise TallmasksError(f"{option} is missing")
    return checked_settings({**values, "output": new_path(str(values["output"]))}, "arguments", dtypes)
