"""The processes that answer `transformers_models`: one reads a config.json with transformers' configuration class,
without torch, and one builds its model on the meta device. A malicious configuration can describe a huge model, or name
weights to download, so the processes have no network, and their memory and time are limited."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tallmasks.io.child_processes import end_with_parent
from tallmasks.vectors.checkpoints.transformers_names import Conversions

MEMORY, SECONDS = 2 << 30, 30  # bytes beyond the libraries' own, CPU seconds per question
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


def answer_questions(with_torch: bool) -> None:
    """Answer questions from stdin until it ends; the answer is null if transformers rejects the configuration. Without
    torch, whose import takes seconds, only questions about "settings" can be answered."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries may print to stdout
    sys.addaudithook(_refuse_network)
    if with_torch:
        import torch

        torch.set_num_threads(1)
    else:
        sys.modules["torch"] = None  # type: ignore[assignment]  # configuration classes import it if they can
    import transformers  # noqa: F401  before the limits are set

    logging.disable(logging.WARNING)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for line in sys.stdin:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
        try:
            answer = _answer(**json.loads(line))
        except Exception:  # a configuration can contain anything
            answer = None
        print(json.dumps(answer), file=answers, flush=True)


def _refuse_network(event: str, _: tuple) -> None:
    if event in _NETWORK:
        raise OSError("config.json asks for the network")


def _answer(about: str, config: str, most_modules: int, tensors: dict[str, list[int]]) -> Any:
    """``about``: "settings", "model", "names" or "parts"; ``tensors``: the shapes in the file, by name. For "tokens",
    ``config`` is the path of a folder with a tokenizer."""
    if about == "settings":
        return json.loads(_settings(json.loads(config)).to_json_string(use_diff=False))
    if about == "tokens":
        return tokenizer_in(config).get_vocab()
    from transformers.pytorch_utils import Conv1D

    model = _model(config, most_modules)
    conversions, state = Conversions(model), model.state_dict()
    parts = [part for name, tensor in state.items() for part in conversions.parts(name, tensor)]
    if about == "model":
        return {
            "tensors": list(state),
            "parts": parts,
            "tied": dict(model.all_tied_weights_keys),
            "inputs_first": [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Conv1D)],
            "buffers": [name for name, _ in model.named_buffers()],
            "outside": _outside(model, most_modules),
            **_vocabulary(model, most_modules),
        }
    names = {name: target for name, target, changed in conversions.loaded(tensors, {*state, *parts}) if not changed}
    return names if about == "names" else {name: _parts(conversions, names[name], tensors[name]) for name in names}


def _parts(conversions: Conversions, target: str, shape: list[int]) -> dict[str, tuple[list[int], list[int], int]]:
    """Shape, strides and offset, in values, of each part of a joined tensor."""
    import torch

    views = conversions.parts(target, torch.empty(shape, device="meta"))
    return {name: (list(view.shape), list(view.stride()), int(view.storage_offset())) for name, view in views.items()}


def _settings(values: dict[str, Any]) -> Any:
    import transformers

    return transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)


def tokenizer_in(folder: str | Path) -> Any:
    """The tokenizer that transformers loads from a folder, without running code from there. Raises ValueError if its
    class reads none of the folder's files, because it makes up a vocabulary then."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    files = [file for key, file in tokenizer.vocab_files_names.items() if file and key != "merges_file"]
    if files and not any(Path(folder, file).is_file() for file in files):
        raise ValueError(f"found no {' and no '.join(files)}")
    return tokenizer


@functools.lru_cache(maxsize=8)
def _model(config: str, most_modules: int) -> Any:
    import transformers

    values = json.loads(config)
    settings = _settings(values)
    kind: Any = getattr(transformers, str((values.get("architectures") or [None])[0]), None)
    kind = kind or transformers.MODEL_MAPPING[type(settings)]
    if not issubclass(kind, transformers.PreTrainedModel):
        raise TypeError(kind)
    return _built(kind, settings, most_modules)


def _built(kind: Any, settings: Any, most_modules: int) -> Any:
    import torch
    from torch.nn.modules.module import register_module_module_registration_hook

    modules: Iterator[int] = iter(range(most_modules))

    def count(*_: Any) -> None:
        if next(modules, None) is None:
            raise ValueError("more layers than the file has tensors")

    settings._attn_implementation = "eager"  # other values can load code from the hub
    hook = register_module_module_registration_hook(count)
    try:
        with torch.device("meta"):
            return kind(settings)
    finally:
        hook.remove()


def _outside(model: Any, most_modules: int) -> list[str]:
    """The tensors outside the base model, for example a classifier. The layer that predicts the tokens of the input
    embedding is not one of them, because it is pretrained like the embedding."""
    import transformers

    kind: Any
    inner, names = model.base_model, list(model.state_dict())
    if inner is not model:
        inside = {name for name in names if name.startswith(f"{model.base_model_prefix}.")}
    elif kind := transformers.MODEL_MAPPING.get(type(model.config), None):
        kind = kind[0] if isinstance(kind, tuple) else kind
        inside = set(_built(kind, model.config, most_modules).state_dict())  # it shares the names, not a prefix
    else:
        inside = set(names)
    with suppress(AttributeError, NotImplementedError):  # no such layers
        predicting, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
        if predicting.shape == embedding.shape:
            inside |= {name for name, tensor in model.named_parameters() if tensor is predicting}
    return [name for name in names if name not in inside]


def _vocabulary(model: Any, most_modules: int) -> dict[str, Any]:
    """Find the tensors with one row per token: their shape changes with the vocabulary size. ``token_tensors`` is empty
    if they cannot be found, or if the values of a token are not contiguous."""
    settings = type(model.config).from_dict(model.config.to_dict())
    try:
        text = settings.get_text_config()
        text.vocab_size += 1
        larger = _built(type(model), settings, most_modules).state_dict()
    except Exception:  # no vocabulary, or several
        return {"token_tensors": {}, "vocabulary_key": ""}
    axes: dict[str, int] = {}
    for name, tensor in model.state_dict().items():
        before, after = tuple(tensor.shape), tuple(larger[name].shape)
        if before == after:
            continue
        axis = next(number for number, sizes in enumerate(zip(before, after, strict=True)) if sizes[0] != sizes[1])
        if after != (*before[:axis], before[axis] + 1, *before[axis + 1 :]) or math.prod(before[:axis]) != 1:
            axes = {}
            break
        axes[name] = axis
    return {"token_tensors": axes, "vocabulary_key": text.attribute_map.get("vocab_size", "vocab_size")}
