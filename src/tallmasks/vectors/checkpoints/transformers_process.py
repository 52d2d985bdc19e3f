"""The processes that answer `known_tensors` with transformers' classes: one reads settings, without torch, and one
builds the model of a config.json on the meta device. The file is not trusted, so they have no network, and their time
is limited."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SECONDS = 30  # of CPU time per question
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


def answer_questions(with_torch: bool) -> None:
    """Answer questions from stdin until it ends; the answer is null if transformers rejects the configuration. Without
    torch, whose import takes seconds, only questions about "settings" can be answered."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries may print to stdout
    sys.addaudithook(_refuse_network)
    if with_torch:
        import torch

        torch.set_num_threads(1)
    else:
        sys.modules["torch"] = None  # type: ignore[assignment]  # configuration classes import it if they can
    import transformers  # noqa: F401  not in the time of a question

    logging.disable(logging.WARNING)
    about: dict[str, Callable[..., Any]] = {"settings": _settings, "tokens": _tokens, "tensors": _tensors}
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process
        try:
            answer = about[question](*arguments)
        except Exception:  # a configuration can contain anything
            answer = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), file=answers, flush=True)


def _refuse_network(event: str, _: tuple) -> None:
    if event in _NETWORK:
        raise OSError("config.json asks for the network")


def _settings(config: str) -> Any:
    return json.loads(_configuration(json.loads(config)).to_json_string(use_diff=False))


def _configuration(values: dict[str, Any]) -> Any:
    import transformers

    return transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)


def _tokens(folder: str) -> Any:
    return tokenizer_in(folder).get_vocab()


def tokenizer_in(folder: str | Path) -> Any:
    """The tokenizer that transformers loads from a folder, without running code from there. Raises ValueError if its
    class reads none of the folder's files, because it makes up a vocabulary then."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    files = [file for key, file in tokenizer.vocab_files_names.items() if file and key != "merges_file"]
    if files and not any(Path(folder, file).is_file() for file in files):
        raise ValueError(f"found no {' and no '.join(files)}")
    return tokenizer


def _tensors(config: str, names: str) -> dict[str, tuple]:
    """The fields of `KnownTensor` for each name in a file that belongs to a tensor of the model."""
    from torch.nn import Embedding, Linear
    from transformers.pytorch_utils import Conv1D

    model = _model(config)
    state, tied = model.state_dict(), dict(model.all_tied_weights_keys)
    several = {*tied, *tied.values()}
    buffers, outside = {name for name, _ in model.named_buffers()}, _outside(model)
    layers = {
        f"{name}.{tensor}": type(module).__name__
        if tensor == "weight" and type(module) in (Conv1D, Embedding, Linear)
        else "other"
        for name, module in model.named_modules()
        if not any(module.children())
        for tensor in module.state_dict()
    }
    token_tensors, key = _vocabulary(model)
    known: dict[str, tuple] = {}
    for name, renamed, target in Conversions(model).loaded(json.loads(names), state):
        if target in state:
            is_head = tied.get(target, target) in outside
            role = "buffer" if target in buffers else "head" if is_head else "weight"
            rows = key if renamed in token_tensors else ""
            known[name] = (tied.get(renamed, renamed), renamed in several, role, layers.get(renamed, ""), rows)
    return known


@functools.lru_cache(maxsize=8)
def _model(config: str) -> Any:
    import transformers

    values = json.loads(config)
    settings = _configuration(values)
    kind: Any = getattr(transformers, str((values.get("architectures") or [None])[0]), None)
    kind = kind or transformers.MODEL_MAPPING[type(settings)]
    if not issubclass(kind, transformers.PreTrainedModel):
        raise TypeError(kind)
    return _built(kind, settings)


def _built(kind: Any, settings: Any) -> Any:
    import torch

    settings._attn_implementation = "eager"  # other values can load code from the hub
    with torch.device("meta"):
        return kind(settings)


def _outside(model: Any) -> set[str]:
    """The tensors outside the base model, for example a classifier. The layer that predicts the tokens of the input
    embedding is not one of them, because it is pretrained like the embedding."""
    import transformers

    kind: Any
    inside = names = set(model.state_dict())
    if model.base_model is not model:
        inside = {name for name in names if name.startswith(f"{model.base_model_prefix}.")}
    elif kind := transformers.MODEL_MAPPING.get(type(model.config), None):
        kind = kind[0] if isinstance(kind, tuple) else kind
        inside = set(_built(kind, model.config).state_dict())  # it shares the names, not a prefix
    with suppress(AttributeError, NotImplementedError):  # no such layers
        predicting, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
        if predicting.shape == embedding.shape:
            inside = inside | {name for name, tensor in model.named_parameters() if tensor is predicting}
    return names - inside


def _vocabulary(model: Any) -> tuple[set[str], str]:
    """The tensors with one row per token, whose shape changes with the vocabulary size, and its key in config.json. No
    tensors if they cannot be found, or if the values of a token are not contiguous."""
    settings = type(model.config).from_dict(model.config.to_dict())
    try:
        text = settings.get_text_config()
        text.vocab_size += 1
        larger = _built(type(model), settings).state_dict()
    except Exception:  # no vocabulary, or several
        return set(), ""
    names = set()
    for name, tensor in model.state_dict().items():
        before, after = tuple(tensor.shape), tuple(larger[name].shape)
        if before == after:
            continue
        axis = next(number for number, sizes in enumerate(zip(before, after, strict=True)) if sizes[0] != sizes[1])
        if after != (*before[:axis], before[axis] + 1, *before[axis + 1 :]) or math.prod(before[:axis]) != 1:
            return set(), ""
        names.add(name)
    return names, text.attribute_map.get("vocab_size", "vocab_size")


class Conversions:
    """The renaming and conversion that transformers does when it loads a file into ``model``, also a live one."""

    def __init__(self, model: Any) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming

        self.model = model
        conversions = get_model_conversion_mapping(model)
        self._renamings = [one for one in conversions if isinstance(one, WeightRenaming)]
        self._converters = [one for one in conversions if isinstance(one, WeightConverter)]
        self._backward: list[Any] = []
        for converter in self._converters:
            with suppress(Exception):  # not every conversion has a way back
                self._backward.append(converter.reverse_transform())

    def parts(self, name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors in a file that transformers joins into one of the model's (experts), by name, as views. Empty if
        the tensor is not joined, or is converted in another way."""
        from transformers.core_model_loading import apply_converters

        target, pattern = apply_converters(name, self._backward)
        if pattern is None:
            return {}
        converter = next(converter for converter in self._backward if pattern in converter.source_patterns)
        converter.add_tensor(target, name, pattern, tensor)
        views: dict[str, torch.Tensor] = {}
        with suppress(Exception), _nothing_copied():
            views = converter.convert(target, model=self.model, config=self.model.config)
        memory = {view.untyped_storage().data_ptr() for view in (tensor, *views.values())}
        return views if len(memory) == 1 and sum(view.numel() for view in views.values()) == tensor.numel() else {}

    def loaded(self, names: Collection[str], in_model: Collection[str]) -> Iterator[tuple[str, str, str]]:
        """For each name in a file: the name, the name after transformers' renaming, and the model's tensor. The last
        two differ if the tensor is converted, too. ``in_model``: the names of the model's tensors."""
        from transformers.core_model_loading import dot_natural_key, rename_source_key

        prefix, there = self.model.base_model_prefix, dict.fromkeys(in_model, True)
        ways: list[tuple[list, list]] = [(self._renamings, []), (self._renamings, self._converters), ([], [])]
        for name in sorted(names, key=dot_natural_key):
            targets = [rename_source_key(name, renamed, joined, prefix, there)[0] for renamed, joined in ways]
            which = next((number for number, target in enumerate(targets) if target in there), 0)
            yield name, targets[0] if which == 1 else targets[which], targets[which]


@contextmanager
def _nothing_copied() -> Iterator[None]:
    """Make `contiguous()` return its argument, so that parts stay views."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Views(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] if function is torch.Tensor.contiguous else function(*args, **(kwargs or {}))

    with Views():
        yield
