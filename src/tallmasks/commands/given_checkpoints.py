"""The models that `tallmasks merge` and `tallmasks compress` work on: from options, or from one YAML file.

    base: meta-llama/Llama-3.2-1B          # what --base takes
    tasks:
      cars: ./cars                         # what --task takes, cars=./cars
      dtd: {checkpoint: ./dtd, mask_lambda: 0.3, weight: 0.7, density: 0.5}
    method: consensus_ties
    options: {keep: 0.1}
    scaling_coefficient: 0.5
    output: ./merged                       # what -o takes
    out_shard_size: 5GB
    keep_base: ["embed*"]                  # `only`, `heads` too
    tokens: base

and of `tallmasks merge` alone `weight` and `density` of all tasks, `trim` and `normalize`; of `tallmasks compress`
alone, true or false: `fit`, `entropy_coding`, `include_base`.  `mergekit_files` has the words of mergekit's files.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tallmasks.methods import registry
from tallmasks.methods.weighting import Setting, Weighting
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.plain_files import expanded

EXAMPLE_TASK = "cars=./cars"
OF_MERGE = ("scaling_coefficient", "k", "trim", "out_shard_size", "only", "keep_base", "heads", "tokens", "layers",
            "options_by_tensor")  # fmt: skip
OF_COMPRESS = ("fit", "entropy_coding", "include_base")
BY_TASK = {"mask_lambda": "mask_lambdas", "weight": "weights", "density": "densities"}
"""What is set for all tasks, and what is set by task."""


@dataclass(frozen=True)
class Given:
    """What is to be merged or compressed, as the user said it.

    Attributes:
        base: a path, or a repository with or without ``@revision``.
        tasks: the same, by task.
        method: a row of the tables, without options.
        options: by name.
        output: the new file or folder.
        mask_lambda, weight, density: for every task without one of its own.
        mask_lambdas, weights, densities: by task.
        trim, normalize: as in `Weighting`.
        out_shard_size: bytes.
        only, keep_base, heads: as in `tensors_apart.apart`.
        tokens: whose tokens the embeddings have, "base" or "union", as in `vocabularies`.
        layers: how many blocks the base must have.
        sha256: what a recipe says of files, by their name, by task; of the base under None.
    """

    base: str
    tasks: Mapping[str, str]
    method: str
    output: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    scaling_coefficient: float | None = None
    k: int | None = None
    mask_lambda: float | None = None
    mask_lambdas: Mapping[str, float] = field(default_factory=dict)
    weight: Setting | None = None
    weights: Mapping[str, Setting] = field(default_factory=dict)
    density: Setting | None = None
    densities: Mapping[str, Setting] = field(default_factory=dict)
    trim: str | None = None
    normalize: bool | None = None
    out_shard_size: int | None = None
    only: Sequence[str] = ()
    keep_base: Sequence[str] = ()
    heads: Sequence[str] | None = None
    tokens: str | None = None
    layers: int | None = None
    sha256: Mapping[str | None, Mapping[str, str]] = field(default_factory=dict)
    fit: bool = False
    entropy_coding: bool = False
    include_base: bool = False
    dtype: str | None = None

    @property
    def spec(self) -> str:
        """The method with its options. Raises TallmasksError where there is no such method or option."""
        options = {name: value for name, value in self.options.items() if not isinstance(value, list)}
        return registry.spec_of({self.method: options} if options else self.method, "--method")

    @property
    def options_by_tensor(self) -> dict[str, Setting] | None:
        """The options that are gradients, or lists of {filter, value}."""
        return {name: value for name, value in self.options.items() if isinstance(value, list)} or None

    def lacks(self, names: tuple[str, ...], command: str) -> None:
        """Refuse what only another command takes. Raises TallmasksError, which names the command."""
        for name in names:
            if _is_given(getattr(self, name)):
                raise TallmasksError(f"{name} means nothing here: it is of `tallmasks {command}`; leave it out")

    def lambdas(self, default: float) -> list[float]:
        """The mask lambda of every task, in order.

        Raises:
            TallmasksError: one is named for a task that is not there, or is no number from 0 up.
        """
        by_task = self._by_task("mask_lambda", default)
        found = [by_task[task] for task in self.tasks]
        if wrong := [value for value in found if not 0 <= value < float("inf")]:
            raise TallmasksError(f"--mask-lambda {wrong[0]}: expected a number from 0 up")
        return found

    def weighting(self) -> Weighting:
        """How the tasks count.  Raises TallmasksError where a task is named that is not there."""
        weights, densities = self._by_task("weight"), self._by_task("density")
        return Weighting(weights, densities, self.trim or "model", self.normalize)

    def _by_task(self, what: str, default: float | None = None) -> dict[str, Any]:
        """What is set by task, for all tasks that have it."""
        own, general = getattr(self, BY_TASK[what]), getattr(self, what)
        for task in own:
            if task not in self.tasks:
                option = f"--{what.replace('_', '-')}"
                raise TallmasksError(f"{option} {task}=...: there is no task {task!r}{nearest(task, self.tasks)}")
        values = {task: own.get(task, default if general is None else general) for task in self.tasks}
        return {task: value for task, value in values.items() if value is not None}


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
    parser.add_argument("--dry-run", action="store_true", help="say what would be read and written, and how large")
    parser.add_argument("-o", "--output", metavar="OUT", help="a new file or folder")


def new_path(text: str) -> Path:
    """The path of something new, `~` expanded.

    Raises:
        TallmasksError: nothing can have such a name.
    """
    path = Path(expanded(text))
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TallmasksError(f"-o {text:.100}: {reason}; expected the path of a new file or folder") from None
    return path


def given(arguments: argparse.Namespace, default_method: str | None, dtypes: Collection[str]) -> Given:
    """What the command line and the file say together.

    Raises:
        TallmasksError: something is missing, said twice, unknown or not of its kind.
    """
    said: dict[str, Any] = {}
    if arguments.file:
        from tallmasks.commands.models_file import read_models_file  # whose libraries take long to import

        said = read_models_file(arguments.file, arguments.base, dtypes)
        for what, by_task in BY_TASK.items():
            said[by_task] = {name: task[what] for name, task in said["tasks"].items() if what in task}
        said["sha256"] = {name: task["sha256"] for name, task in said["tasks"].items() if "sha256" in task}
        if base_sha256 := said.pop("base_sha256", None):
            said["sha256"][None] = base_sha256
        said["tasks"] = {name: task["checkpoint"] for name, task in said["tasks"].items()}
    if arguments.base is not None:
        said["base"] = arguments.base
    tasks: dict[str, str] = {}
    for text in arguments.task:
        name, equals, checkpoint = text.partition("=")
        if not (name and equals and checkpoint):
            raise TallmasksError(f"--task {text}: expected NAME=CHECKPOINT, {EXAMPLE_TASK} for instance")
        if name in tasks:
            raise TallmasksError(f"--task {name}=...: the task {name} is named twice; every task has one checkpoint")
        tasks[name] = checkpoint
    said["tasks"] = {**said.get("tasks", {}), **tasks}
    for text in arguments.option:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise TallmasksError(f"--option {text}: expected KEY=VALUE, keep=0.1 for instance")
        said.setdefault("options", {})[name] = value
    for what, by_task in BY_TASK.items():
        for text in getattr(arguments, what, []):
            name, equals, value = text.rpartition("=")
            number = _number(value, f"--{what.replace('_', '-')} {text}")
            if equals:
                said.setdefault(by_task, {})[name] = number
            else:
                said[what] = number
    for name in ("method", "dtype", "output", *OF_MERGE, *OF_COMPRESS):
        if _is_given(getattr(arguments, name, None)):
            said[name] = getattr(arguments, name)
    if getattr(arguments, "normalize", None) is not None:
        said["normalize"] = arguments.normalize
    for name in {None, *said.get("sha256", {})}:  # of a checkpoint that an option has exchanged
        if arguments.base is not None if name is None else name in tasks:
            said.get("sha256", {}).pop(name, None)
    said.setdefault("method", default_method)
    return complete(said)


def complete(said: dict[str, Any]) -> Given:
    """What was said, with paths as they are meant.  Raises TallmasksError where something is missing."""
    if said["method"] in ("weight_averaging", "slerp") and said["tasks"] and not said.get("base"):
        said["base"] = next(iter(said["tasks"].values()))  # what lies between models is the same from every base
    for name, option in (("base", "--base BASE"), ("tasks", "--task NAME=CHECKPOINT"), ("method", "--method METHOD")):
        if not said.get(name):
            raise TallmasksError(f"{option} is missing")
    if not said.get("output"):
        raise TallmasksError("-o OUT is missing: where the result goes")
    if said.get("out_shard_size") is not None:
        said["out_shard_size"] = _shard_size(said["out_shard_size"])
    for name in ("only", "keep_base", "heads"):
        if isinstance(said.get(name), str):
            said[name] = [said[name]]
    if isinstance(said.get("heads"), bool):
        said["heads"] = [] if said["heads"] else None
    said["tasks"] = {name: expanded(checkpoint) for name, checkpoint in said["tasks"].items()}
    return Given(**{**said, "base": expanded(said["base"]), "output": new_path(said["output"])})


def from_python(base: Any, tasks: Mapping[str, Any], out: Any, **settings: Any) -> Given:
    """The same from a function's arguments: paths may be `Path`, a dtype torch's; what is by task may be a mapping."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise TallmasksError(f"tasks: found {type(tasks).__name__}; expected checkpoints by task, {{'cars': './cars'}}")
    said = {name: value for name, value in settings.items() if value is not None}
    for what, by_task in BY_TASK.items():
        if isinstance(said.get(what), Mapping):
            said[by_task] = said.pop(what)
    if "dtype" in said:
        said["dtype"] = str(said["dtype"]).removeprefix("torch.")
    named = {str(name): _path(checkpoint, f"tasks: {name}") for name, checkpoint in tasks.items()}
    given_base = None if base is None else _path(base, "base")
    return complete({**said, "base": given_base, "tasks": named, "output": _path(out, "out")})


def _path(value: Any, what: str) -> str:
    if not isinstance(value, str | PathLike):
        advice = "task_vector, merge and apply take state dicts and modules"
        raise TallmasksError(f"{what}: found a {type(value).__name__}; expected a path or a repository: {advice}")
    return os.fspath(value)


def _shard_size(value: Any) -> int:
    """How many bytes a text such as "5GB" or "500MB" means; a number is bytes."""
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(i?)B?", str(value).strip(), re.IGNORECASE)
    size = int(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " ") if match else 0
    if not size:
        raise TallmasksError(f"--out-shard-size {value}: expected a number of bytes, 5GB or 500MB for instance")
    return size


def _is_given(value: Any) -> bool:
    """Whether an option was given; 0 is a value."""
    return value is not None and value is not False and value != ()


def _number(value: Any, where: str) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TallmasksError(f"{where}: found {value!r:.100}, expected a number") from None
