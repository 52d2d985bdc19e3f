"""How transformers renames and joins tensors when it loads a file. Used for files and for live models."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Name endings that transformers replaces in every model.
_LEGACY = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
    ".weight_g": ".parametrizations.weight.original0",
    ".weight_v": ".parametrizations.weight.original1",
}
# Name parts inserted by torch.compile, activation checkpointing and FSDP.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def unwrapped(name: str) -> str:
    for part in _WRAPPERS:
        name = name.replace(part, "")
    return name


def modern(name: str) -> str:
    """A name without wrapper parts and with current name endings; does not need transformers."""
    name = unwrapped(name)
    old = next(filter(name.endswith, _LEGACY), "")
    return name.removesuffix(old) + _LEGACY.get(old, "")


class Conversions:
    """The renaming and conversion that transformers does when it loads a file into ``model``."""

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
        storages = {part.untyped_storage()._cdata for part in (tensor, *views.values())}
        whole = len(storages) == 1 and sum(view.numel() for view in views.values()) == tensor.numel()
        return views if whole else {}

    def loaded(self, names: Collection[str], own: Collection[str]) -> Iterator[tuple[str, str, bool]]:
        """For each name in a file: the name, the model's tensor, and whether it is more than renamed. ``own``: the
        names of the model's tensors and of their `parts`."""
        from transformers.core_model_loading import dot_natural_key, rename_source_key

        prefix, there = self.model.base_model_prefix, dict.fromkeys(own, True)
        ways: list[tuple[list, list]] = [(self._renamings, []), (self._renamings, self._converters), ([], [])]
        for name in sorted(names, key=dot_natural_key):
            targets = [rename_source_key(name, renamed, joined, prefix, there)[0] for renamed, joined in ways]
            which = next((number for number, target in enumerate(targets) if target in there), 0)
            yield name, targets[which], which == 1


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
