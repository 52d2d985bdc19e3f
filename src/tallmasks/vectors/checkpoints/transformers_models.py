"""What transformers knows about a checkpoint: the settings in its config.json with all defaults, and the model's names,
ties, buffers, and tensors with one row per token. Separate processes answer (`transformers_process`), because a
config.json is not trusted and the imports are slow: 1 s for settings, 10 s for a model. So a question is asked only if
something differs, and early if its answer is needed late."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from numpy.lib.stride_tricks import as_strided

from tallmasks.errors import EXTRAS, by_extra, short, warn
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

_MODULES = 20  # modules per tensor, more than any class has

Answer = Future[Any]


@dataclass(frozen=True)
class LibraryModel:
    """The transformers model that a config.json describes.

    Attributes:
        parts: names in files of tensors that the model joins (experts).
        tied: tied tensors, each mapped to the one that it is tied to.
        inputs_first: Conv1D weights, [inputs, outputs].
        outside: tensors that are not in the base model, such as a classifier.
        token_tensors: tensors with one row per token, with the token axis; all axes before it have length 1.
            Empty if unknown.
        vocabulary_key: the vocabulary size's key in config.json.
    """

    config: str
    most_modules: int
    tensors: Collection[str]
    parts: Collection[str]
    tied: Mapping[str, str]
    inputs_first: Collection[str]
    buffers: Collection[str]
    outside: Collection[str]
    token_tensors: Mapping[str, int]
    vocabulary_key: str

    def names(self, names: Collection[str]) -> dict[str, str]:
        """The model's name for each name in a file; tensors that need more than renaming are left out."""
        return _ask("names", self.config, self.most_modules, dict.fromkeys(names, ())) or {}

    def inside_and_outside(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Names in a file: those of the base model's parameters, and those of heads, buffers and tensors that the model
        does not have."""
        inside, own = {*self.tensors, *self.parts}.difference(self.outside, self.buffers), self.names(names)
        outside = {name for name, target in own.items() if self.tie_group(target) not in inside}
        return {*names} - outside, outside

    def in_parts(self, checkpoint: Checkpoint) -> Checkpoint:
        """Split tensors that transformers joins (experts), and give the parts the names they have in files."""
        joined = _ask("parts", self.config, self.most_modules, checkpoint.shapes) or {}
        tensors, arrays, file_of = dict(checkpoint.tensors), dict(checkpoint.arrays), dict(checkpoint.file_of)
        for name, parts in joined.items():
            if not parts:
                continue
            info, flat, weight_file = tensors.pop(name), arrays.pop(name).reshape(-1), file_of.pop(name, None)
            for part, (shape, strides, offset) in parts.items():
                tensors[part] = TensorInfo(info.dtype, tuple(shape))
                steps = [step * flat.itemsize for step in strides]
                arrays[part] = as_strided(flat[offset:], shape, steps, writeable=False)
                if weight_file is not None:
                    file_of[part] = weight_file
        return replace(checkpoint, tensors=dict(sorted(tensors.items())), arrays=arrays, file_of=file_of)

    def tie_group(self, name: str) -> str:
        """One common name for all tensors that are tied to each other."""
        return self.tied.get(name, name)


def library_model(*checkpoints: Checkpoint) -> LibraryModel | None:
    """The model of the first checkpoint that has a config.json with a model type. None if transformers is not
    installed, lacks the class, or rejects the configuration."""
    described = _described(checkpoints)
    return _library_model(*described) if described and has_library() else None


def start_library_model(*checkpoints: Checkpoint) -> None:
    """Start to build what `library_model` waits for."""
    described = _described(checkpoints)
    if described and has_library():
        _asked("model", *described)


def _described(checkpoints: Collection[Checkpoint]) -> tuple[str, int] | None:
    for one in checkpoints:
        if one.config.get("model_type"):
            return json.dumps(one.config, sort_keys=True), _MODULES * len(one.names)
    return None


@functools.lru_cache(maxsize=32)
def _library_model(config: str, most_modules: int) -> LibraryModel | None:
    known = _ask("model", config, most_modules)
    return None if known is None else LibraryModel(config, most_modules, **known)


def library_settings(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """The settings in config.json with the library's defaults and current names. None as in `library_model`."""
    described = _described([checkpoint])
    return _library_settings(described[0]) if described and has_library() else None


@functools.lru_cache(maxsize=32)
def _library_settings(config: str) -> Mapping[str, Any] | None:
    return _ask("settings", config)


def start_library_settings(checkpoint: Checkpoint) -> None:
    """Start to read what `library_settings` waits for."""
    described = _described([checkpoint])
    if described and has_library():
        _asked("settings", described[0])


def library_tokens(files: Mapping[str, Path]) -> dict[str, int] | None:
    """The token ids by text of a tokenizer, given by the names of its files in their folder. None if transformers is
    not installed or cannot read it."""
    if not has_library():
        return None
    with TemporaryFolder() as folder:
        for name, path in files.items():
            Path(folder, name).symlink_to(path.absolute())
        return _ask("tokens", str(folder))


def has_library() -> bool:
    return find_spec("transformers") is not None


def library_advice(*checkpoints: Checkpoint) -> str:
    """The end of an error message: advice to install transformers if that could help, else an empty string."""
    if has_library() or not any(one.config.get("model_type") for one in checkpoints):
        return ""
    return f". transformers, which is not installed, knows them: {by_extra(EXTRAS['transformers'])}"


def _ask(about: str, config: str, most_modules: int = 0, tensors: Mapping[str, Collection[int]] | None = None) -> Any:
    """The answer of a process; None if the library rejects the configuration or does not finish within the limits."""
    try:
        return _asked(about, config, most_modules, tensors).result()
    except ChildProcessError:
        if about == "tokens":
            return None
        kind = short(json.loads(config)["model_type"])
        warn(f"transformers cannot read a config.json with model_type {kind} in time and memory, so it is not used")
        return None


def _asked(
    about: str, config: str, most_modules: int = 0, tensors: Mapping[str, Collection[int]] | None = None
) -> Answer:
    question = {"about": about, "config": config, "most_modules": most_modules, "tensors": tensors or {}}
    return _answer(os.getpid(), about != "settings", json.dumps(question))


@functools.lru_cache(maxsize=32)
def _answer(pid: int, with_torch: bool, question: str) -> Answer:
    answer = Answer()
    _questions(pid, with_torch).put((question, answer))
    return answer


@functools.cache
def _questions(_: int, with_torch: bool) -> SimpleQueue[tuple[str, Answer]]:
    """The questions for one process, of which each asking process has its own."""
    questions = SimpleQueue[tuple[str, Answer]]()
    Thread(target=_pass_on, args=(questions, with_torch), daemon=True).start()
    return questions


def _pass_on(questions: SimpleQueue[tuple[str, Answer]], with_torch: bool) -> None:
    """Start the process, and another if it was killed by one of its limits. It ends with this thread, which ends with
    the program."""
    process: Any = None
    while True:
        question, answer = questions.get()
        try:
            process = process or _started(with_torch)
            process.stdin.write(question + "\n")
            process.stdin.flush()
            answer.set_result(json.loads(process.stdout.readline()))
        except Exception as error:  # otherwise the asking thread would wait forever
            if process:
                process.kill()
                process.wait()
            process = None
            answer.set_exception(ChildProcessError(str(error)))


def _started(with_torch: bool) -> Any:
    program = "from tallmasks.vectors.checkpoints.transformers_process import answer_questions"
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"{program}; answer_questions({with_torch})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **offline},
        start_new_session=True,  # Ctrl-C should only reach this process
        text=True,
    )
