"""What transformers knows about a model's files: each of its tensors, its settings with all defaults, and its tokens.
Processes answer (`transformers_process`), because a config.json is not trusted and the imports take 1 s for settings
and 5 to 10 s for a model. So a question is asked only if something differs, and early if its answer is needed late."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from tallmasks.errors import EXTRAS, by_extra, short, warn
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

BOOKKEEPING = {
    *("_name_or_path", "name_or_path", "transformers_version", "torch_dtype", "dtype", "architectures", "auto_map"),
    *("use_cache", "finetuning_task", "problem_type", "task_specific_params", "gradient_checkpointing"),
    *("output_attentions", "output_hidden_states", "return_dict", "tokenizer_class"),
}
"""Fields of config.json that do not change what the weights compute."""


@dataclass(frozen=True)
class KnownTensor:
    """A tensor of a transformers model.

    Attributes:
        identity: equal for all names of one tensor: in files of any release, with or without a head, and if tied.
        is_tied: whether the model ties it to another tensor.
        role: "weight", "buffer", or "head" for weights outside the base model.
        inputs_first: whether it is a Conv1D weight, [inputs, outputs].
        vocabulary_key: the key in config.json of its number of rows, if it has one per token; else empty. All axes
            before that of the tokens have length 1.
    """

    identity: str
    is_tied: bool
    role: str
    inputs_first: bool
    vocabulary_key: str


def known_tensors(names: Collection[str], *checkpoints: Checkpoint) -> dict[str, KnownTensor]:
    """What each tensor is that has one of ``names`` in a file of the model of the first checkpoint whose config.json
    has a model type. Names that the model does not have are left out, and all if transformers is not installed, lacks
    the class, or rejects the configuration."""
    question = _about_tensors(names, checkpoints)
    answer = _answer(*question) if question else None
    return {name: KnownTensor(*fields) for name, fields in (answer or {}).items()}


def start_known_tensors(names: Collection[str], *checkpoints: Checkpoint) -> None:
    """Start to find out what `known_tensors` waits for."""
    if question := _about_tensors(names, checkpoints):
        _asked(os.getpid(), *question)


def _about_tensors(names: Collection[str], checkpoints: Collection[Checkpoint]) -> tuple[str, ...] | None:
    config = next((json.dumps(one.config) for one in checkpoints if _is_of_library(one)), None)
    return None if config is None else ("tensors", config, json.dumps(sorted(names)))


def library_settings(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """The settings in config.json with transformers' defaults and current names. None as in `known_tensors`."""
    return _answer("settings", json.dumps(checkpoint.config)) if _is_of_library(checkpoint) else None


def start_library_settings(checkpoint: Checkpoint) -> None:
    """Start to read what `library_settings` waits for."""
    if _is_of_library(checkpoint):
        _asked(os.getpid(), "settings", json.dumps(checkpoint.config))


def _is_of_library(checkpoint: Checkpoint) -> bool:
    return "model_type" in checkpoint.config and has_library()


def library_tokens(files: Mapping[str, Path]) -> dict[str, int] | None:
    """The token ids by text of a tokenizer, given by the names of its files in their folder. None if transformers is
    not installed or cannot read it."""
    if not has_library():
        return None
    with TemporaryFolder() as folder:
        for name, path in files.items():
            Path(folder, name).symlink_to(path.absolute())
        return _answer("tokens", str(folder))


def has_library() -> bool:
    return find_spec("transformers") is not None


def library_advice(*checkpoints: Checkpoint) -> str:
    """The end of an error message: advice to install transformers if that could help, else an empty string."""
    if has_library() or not any(one.config.get("model_type") for one in checkpoints):
        return ""
    return f". transformers, which is not installed, knows them: {by_extra(EXTRAS['transformers'])}"


def _answer(about: str, *arguments: str) -> Any:
    """The answer of a process; None if the library rejects the file or does not finish in time."""
    try:
        return _asked(os.getpid(), about, *arguments).result()
    except TimeoutError:
        warn(f"transformers needs too long to read the {about} of {short(arguments[0])}, so it is ignored")
        return None


@functools.lru_cache(maxsize=32)
def _asked(pid: int, about: str, *arguments: str) -> Future[Any]:
    answer = Future[Any]()
    _questions(pid, about != "settings").put((json.dumps([about, *arguments]), answer))
    return answer


@functools.cache
def _questions(_: int, with_torch: bool) -> SimpleQueue[tuple[str, Future[Any]]]:
    """The questions for one process, of which each asking process has its own."""
    questions = SimpleQueue[tuple[str, Future[Any]]]()
    Thread(target=_pass_on, args=(questions, with_torch), daemon=True).start()
    return questions


def _pass_on(questions: SimpleQueue[tuple[str, Future[Any]]], with_torch: bool) -> None:
    """Start the process, and another if it was ended by its time limit. It ends with this thread, which ends with the
    program."""
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
            answer.set_exception(TimeoutError(str(error)))


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
