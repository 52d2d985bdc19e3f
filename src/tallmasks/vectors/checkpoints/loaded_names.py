"""How transformers renames, joins and ties the tensors of a file as it loads them, by its own mapping.

One module for files and live models.  The library is imported where names do not match as they are: that takes seconds.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from numpy.lib.stride_tricks import as_strided

from tallmasks.store.errors import EXTRAS
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo

if TYPE_CHECKING:
    import torch

_LEGACY = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
    ".weight_g": ".parametrizations.weight.original0",
    ".weight_v": ".parametrizations.weight.original1",
}
"""How names end that the library renames in every model: its mapping "legacy"."""
_MODULES = 20
"""More modules for a tensor than any class has."""


def modern(name: str) -> str:
    """A name as every model of transformers has it by now; needs no library."""
    old = next(filter(name.endswith, _LEGACY), "")
    return name.removesuffix(old) + _LEGACY.get(old, "")


class Conversions:
    """What transformers does to the names of a file as it loads them into a model, which may be without values."""

    def __init__(self, model: Any) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming

        self.model = model
        every = get_model_conversion_mapping(model)
        self._renamings = [one for one in every if isinstance(one, WeightRenaming)]
        self._converters = [one for one in every if isinstance(one, WeightConverter)]
        self._backward: list[Any] = []
        for converter in self._converters:
            with suppress(Exception):  # not every conversion has a way back
                self._backward.append(converter.reverse_transform())

    def parts(self, name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors that transformers joins to one of the model's (experts), by name, as views of it.

        Empty where it is no such tensor, or is converted otherwise.
        """
        from transformers.core_model_loading import apply_converters

        target, pattern = apply_converters(name, self._backward)
        if pattern is None:
            return {}
        converter = next(converter for converter in self._backward if pattern in converter.source_patterns)
        converter.add_tensor(target, name, pattern, tensor)
        views: dict[str, torch.Tensor] = {}
        with suppress(Exception), _nothing_copied():
            views = converter.convert(target, model=self.model, config=self.model.config)
        storages = {part.untyped_storage()._cdata for part in (tensor, *views.values())}
        whole = len(storages) == 1 and sum(view.numel() for view in views.values()) == tensor.numel()
        return views if whole else {}

    def loaded(self, names: Collection[str], own: Collection[str]) -> Iterator[tuple[str, str, bool]]:
        """Of each name in one file, that of the model's tensor, and whether it is more than renamed.

        ``own`` are the names of the model's tensors, and those of their `parts`.
        """
        from transformers.core_model_loading import dot_natural_key, rename_source_key

        prefix, there = self.model.base_model_prefix, dict.fromkeys(own, True)
        ways: list[tuple[list, list]] = [(self._renamings, []), (self._renamings, self._converters), ([], [])]
        for name in sorted(names, key=dot_natural_key):
            targets = [rename_source_key(name, renamed, joined, prefix, there)[0] for renamed, joined in ways]
            which = next((number for number, target in enumerate(targets) if target in there), 0)
            yield name, targets[which], which == 1


@contextmanager
def _nothing_copied() -> Iterator[None]:
    """What would be a contiguous copy of a tensor's part stays a view."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Views(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] if function is torch.Tensor.contiguous else function(*args, **(kwargs or {}))

    with Views():
        yield


def empty_model(*checkpoints: Checkpoint) -> Any:
    """The model of transformers' that the first config.json names, without values.

    None without transformers, for a class that it lacks, and where the class refuses the configuration.
    """
    for one in checkpoints:
        if one.config.get("model_type"):
            return _empty_model(json.dumps(one.config), _MODULES * len(one.names))
    return None


@functools.lru_cache(maxsize=8)
def _empty_model(config: str, most_modules: int) -> Any:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        import torch
        import transformers
        from torch.nn.modules.module import register_module_module_registration_hook

        count = 0

        def counted(*_: Any) -> None:
            nonlocal count
            count += 1
            if count > most_modules:
                raise ValueError("more layers than the file has tensors")

        values = json.loads(config)
        settings = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
        settings._attn_implementation = "eager"  # others may load code of the hub's
        kind: Any = getattr(transformers, str((values.get("architectures") or [None])[0]), None)
        kind = kind or transformers.MODEL_MAPPING[type(settings)]
        hook = register_module_module_registration_hook(counted)
        try:
            with torch.device("meta"):
                return kind(settings) if issubclass(kind, transformers.PreTrainedModel) else None
        finally:
            hook.remove()
    except Exception:  # anything may be in a configuration
        return None
    finally:
        logging.disable(before)


def library_advice(*checkpoints: Checkpoint) -> str:
    """What to do about names that no file has, as the end of a sentence: install the library that knows others."""
    if find_spec("transformers") or not any(one.config.get("model_type") for one in checkpoints):
        return ""
    return f'. transformers knows other names of its tensors: pip install "tallmasks[{EXTRAS["transformers"]}]"'


def module_names(model: Any, names: Collection[str]) -> dict[str, str]:
    """The name in a model for each name in a file, but for tensors that transformers makes something else of."""
    conversions = Conversions(model)
    return {name: target for name, target, changed in conversions.loaded(names, _own(conversions)) if not changed}


def in_parts(model: Any, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint in which tensors that transformers has joined have the names of a file for their parts."""
    import torch

    conversions = Conversions(model)
    parts = {
        name: conversions.parts(target, torch.empty(checkpoint.info(name).shape, device="meta"))
        for name, target in module_names(model, checkpoint.tensors).items()
    }
    tensors, arrays, places = dict(checkpoint.tensors), dict(checkpoint.arrays), dict(checkpoint.places)
    for joined, views in parts.items():
        if not views:
            continue
        info, flat, place = tensors.pop(joined), arrays.pop(joined).reshape(-1), places.pop(joined, None)
        for name, view in views.items():
            strides = [step * flat.itemsize for step in view.stride()]
            tensors[name] = TensorInfo(info.dtype, tuple(view.shape))
            arrays[name] = as_strided(flat[view.storage_offset() :], view.shape, strides, writeable=False)
            if place is not None:
                places[name] = place
    return replace(checkpoint, tensors=dict(sorted(tensors.items())), arrays=arrays, places=places)


def _own(conversions: Conversions) -> set[str]:
    """The names of a model's tensors, and of the parts of those that transformers joins."""
    state = conversions.model.state_dict()
    return {*state, *(part for name, tensor in state.items() for part in conversions.parts(name, tensor))}
