"""What transformers knows about a checkpoint's model: names, ties, buffers, and tensors with one row per token. It is
queried in a separate process (`library_process`), and only if names or vocabularies differ, as its import is slow."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from threading import Lock
from typing import Any

from numpy.lib.stride_tricks import as_strided

from tallmasks.errors import EXTRAS, warn
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo

_MODULES = 20  # modules per tensor, more than any class has
_asking = Lock()


@dataclass(frozen=True)
class LibraryModel:
    """The transformers model that a config.json describes.

    Attributes:
        tied: tied tensors, each mapped to the one that it is tied to.
        inputs_first: Conv1D weights, [inputs, outputs].
        outside: tensors that are not in the base model, such as a classifier.
        settings: the configuration with all defaults.
        token_tensors: tensors with one row per token, with the token axis; all axes before it have length 1.
            Empty if unknown.
        vocabulary_key: the vocabulary size's key in config.json.
    """

    config: str
    most_modules: int
    tensors: Collection[str]
    tied: Mapping[str, str]
    inputs_first: Collection[str]
    buffers: Collection[str]
    outside: Collection[str]
    settings: Mapping[str, Any]
    token_tensors: Mapping[str, int]
    vocabulary_key: str

    def names(self, names: Collection[str]) -> dict[str, str]:
        """The model's name for each name in a file; tensors that need more than renaming are left out."""
        return _ask("names", self.config, self.most_modules, dict.fromkeys(names, ())) or {}

    def inside_and_outside(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Names in a file: those of the base model's parameters, and those of heads, buffers and tensors that the model
        does not have."""
        others, own = {*self.outside, *self.buffers}, self.names(names)
        groups = {name: self.tie_group(own[name]) for name in own}
        outside = {name for name, group in groups.items() if group in others or group not in self.tensors}
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
    for one in checkpoints:
        if one.config.get("model_type"):
            return _library_model(json.dumps(one.config, sort_keys=True), _MODULES * len(one.names))
    return None


@functools.lru_cache(maxsize=32)
def _library_model(config: str, most_modules: int) -> LibraryModel | None:
    if not has_library():
        return None
    facts = _ask("model", config, most_modules, {})
    return None if facts is None else LibraryModel(config, most_modules, **facts)


def has_library() -> bool:
    return find_spec("transformers") is not None


def library_advice(*checkpoints: Checkpoint) -> str:
    """The end of an error message: advice to install transformers if that could help, else an empty string."""
    if has_library() or not any(one.config.get("model_type") for one in checkpoints):
        return ""
    return f'. transformers, which is not installed, knows them: pip install "tallmasks[{EXTRAS["transformers"]}]"'


def _ask(about: str, config: str, most_modules: int, tensors: Mapping[str, Collection[int]]) -> Any:
    """The answer of the process; None if the library cannot build the model within the limits."""
    question = {"about": about, "config": config, "most_modules": most_modules, "tensors": tensors}
    with _asking:
        process = _process(os.getpid())
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        except (OSError, ValueError):  # killed by one of its limits
            _process.cache_clear()
            process.kill()
            process.wait()
    kind = json.loads(config)["model_type"]
    warn(f"a config.json with model_type {kind} describes a model that is too large to build; transformers is not used")
    return None


@functools.cache
def _process(_: int) -> Any:
    """The process that answers, one per asking process; it ends with its parent."""
    program = "from tallmasks.vectors.checkpoints.library_process import answer_questions; answer_questions()"
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **offline},
        start_new_session=True,  # Ctrl-C should only reach this process
        text=True,
    )
    assert process.stdin
    atexit.register(process.stdin.close)  # ends the process
    return process
