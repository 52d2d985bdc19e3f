"""What transformers knows about a model's files: each of its tensors, its settings with all defaults, and its tokens.
Processes answer (`transformers_process`), because a config.json is not trusted and the imports take 1 s for settings
and 5 to 10 s for a model. So a question is asked only if something differs."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
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

_asking = Lock()


@dataclass(frozen=True)
class KnownTensor:
    """A tensor of a transformers model.

    Attributes:
        identity: equal for all names of one tensor: in files of any release, with or without a head, and if tied.
        is_tied: whether the model ties it to another tensor.
        role: "weight", "buffer", or "head" for weights outside the base model.
        layer: "Linear", "Conv1D" (whose weight is [inputs, outputs]) or "Embedding" for the weight of a module of
            exactly this class; "other" for other tensors of modules without submodules; else empty.
        vocabulary_key: the key in config.json of its number of rows, if it has one per token; else empty. All axes
            before that of the tokens have length 1.
    """

    identity: str
    is_tied: bool
    role: str
    layer: str
    vocabulary_key: str

    @property
    def module(self) -> str:
        return self.identity.rpartition(".")[0]


def known_tensors(names: Collection[str], *checkpoints: Checkpoint) -> dict[str, KnownTensor]:
    """What each tensor is that has one of ``names`` in a file of the model of the first checkpoint whose config.json
    has a model type. Names that the model does not have are left out, and all if transformers is not installed, lacks
    the class, or rejects the configuration."""
    config = next((json.dumps(one.config) for one in checkpoints if _is_of_library(one)), None)
    answer = None if config is None else _answer("tensors", config, json.dumps(sorted(names)))
    return {name: KnownTensor(*fields) for name, fields in (answer or {}).items()}


def library_settings(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """The settings in config.json with transformers' defaults and current names. None as in `known_tensors`."""
    return _answer("settings", json.dumps(checkpoint.config)) if _is_of_library(checkpoint) else None


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


@functools.lru_cache(maxsize=32)
def _answer(about: str, *arguments: str) -> Any:
    """The answer of a process; None if the library rejects the file or does not finish in time."""
    with _asking:
        process = _process(os.getpid(), about != "settings")
        try:
            process.stdin.write(json.dumps([about, *arguments]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        except BaseException as error:  # also an interrupt: its answer would be taken for the next one
            process.kill()
            process.wait()
            _process.cache_clear()
            if not isinstance(error, OSError | ValueError):
                raise
    warn(f"transformers needs too long to read the {about} of {short(arguments[0])}, so it is ignored")
    return None


@functools.cache
def _process(_: int, with_torch: bool) -> Any:
    """The process that answers, of which each asking process has its own. It ends when its stdin does."""
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
