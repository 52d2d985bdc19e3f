"""A bundle's names of a live module's tensors, where wrappers or transformers have changed them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tallmasks.bundles.manifest import Manifest
from tallmasks.store.errors import TallmasksError

if TYPE_CHECKING:
    import torch


def bundle_names(module: torch.nn.Module, names: Collection[str], manifest: Manifest) -> dict[str, str]:
    """The bundle's name for each of a module's names; a name without one stands for itself.

    Tried in order: the names as they are, without the prefix of a wrapper (DDP's ``module.``), with the prefix that all
    the bundle's names have, and as transformers renames the tensors of a file when it loads them.  ``_orig_mod.`` of
    torch.compile never counts.  The first that has every tensor of the bundle is taken, else the one that has most.

    Raises TallmasksError where transformers makes other tensors of the bundle's than it has.
    """
    best: dict[str, str] = {}
    most = -1
    for renamed in _readings(module, names, manifest):
        count = len({manifest.aliases.get(name, name) for name in renamed.values()} & manifest.tensors.keys())
        if count > most:
            best, most = renamed, count
        if count == len(manifest.tensors):
            break
    return best


def _readings(module: torch.nn.Module, names: Collection[str], manifest: Manifest) -> Iterator[dict[str, str]]:
    plain = {name: name.replace("_orig_mod.", "") for name in names}
    yield plain
    for prefix in _prefixes(plain.values()):
        yield {name: found.removeprefix(prefix) for name, found in plain.items()}
    for prefix in _prefixes(manifest.tensors):
        yield {name: prefix + found for name, found in plain.items()}
    yield plain | _renamed_by_transformers(module, plain, manifest)


def _prefixes(names: Collection[str]) -> Iterator[str]:
    """The paths of modules in which all of the names are, the shortest first."""
    prefix = ""
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            return
        prefix += f"{parts[0]}."
        yield prefix


def _renamed_by_transformers(module: torch.nn.Module, plain: dict[str, str], manifest: Manifest) -> dict[str, str]:
    """The bundle's name for each name of the module's that transformers would load from a file with those names."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:  # no module is one of transformers'
        return {}
    models = (found for found in module.named_modules() if isinstance(found[1], library.PreTrainedModel))
    path, model = next(models, ("", None))
    if model is None:
        return {}
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    start = f"{path}.".replace("_orig_mod.", "") if path else ""
    names = {found.removeprefix(start): name for name, found in plain.items() if found.startswith(start)}
    conversions = get_model_conversion_mapping(model)
    renamings = [conversion for conversion in conversions if isinstance(conversion, WeightRenaming)]
    converters = [conversion for conversion in conversions if isinstance(conversion, WeightConverter)]
    renamed = {}
    for name in (*manifest.aliases, *manifest.tensors):
        found, converter = rename_source_key(name, renamings, converters, model.base_model_prefix, names)
        if converter is not None and found in names:
            raise TallmasksError(
                f"transformers converts {name} of the bundle to another tensor, {names[found]} of the module, as it"
                f" loads a file; such a module cannot be changed in place. Load the task with"
                f" {type(model).__name__}.from_pretrained(None, config=model.config,"
                " state_dict=bundle.state_dict(task))."
            )
        if found in names:
            renamed[names[found]] = name
    return renamed
