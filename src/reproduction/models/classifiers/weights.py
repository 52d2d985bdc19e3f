"""Reads and checks the weights of classifiers that transformers saved: pretrained bodies, and fine-tuned models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModel, PretrainedConfig

from reproduction.models.checkpoint_sources import refuse_adapter
from reproduction.models.classifiers import networks
from reproduction.models.classifiers.heads import HEAD, head_parameters, packed
from reproduction.models.classifiers.settings import BOOKKEEPING, BUFFERS, class_names_of, settings_of
from reproduction.models.foreign_weights import check_names, float_array, json_of
from tallmasks.errors import TallmasksError, one_line, short
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

CONFIG = "config.json"
Arrays = dict[str, NDArray[np.float32]]


def pretrained_state(spec: Mapping[str, Any], weights: Path, trained: Any) -> dict[str, NDArray[Any]]:
    """The content of a pretrained file: the body's tensors and running statistics in float32.

    Tensors of heads are left out.  ``weights``: the folder, or the weights file in it; ``trained``: see
    `networks.build`.

    Raises TallmasksError if a file is damaged or missing, or does not fit the architecture.
    """
    body, _, statistics = _arrays(spec, weights if weights.is_dir() else weights.parent, trained, any_head=True)
    return body | {f"{BUFFERS}{name}": values for name, values in statistics.items()}


def fine_tuned_state(spec: Mapping[str, Any], path: Path, trained: Any) -> dict[str, NDArray[Any]]:
    """The body's tensors of a fine-tuned model; if heads are trained, also its head, with its running statistics.

    Raises TallmasksError if a file is damaged or missing, its tensors do not fit the architecture, or its head does not
    fit ``spec["classes"]``.
    """
    body, head, statistics = _arrays(spec, path if path.is_dir() else path.parent, trained, any_head=False)
    return {**body, HEAD: packed(head | statistics)} if head else body


def _arrays(spec: Mapping[str, Any], folder: Path, trained: Any, any_head: bool) -> tuple[Arrays, Arrays, Arrays]:
    """The tensors of the body and of the head, and running statistics, by the names of transformers' network, which can
    differ from those in files.  With ``any_head``, the head can be missing or another one."""
    refuse_adapter(folder)
    config = networks.configuration(settings_of(spec["architecture"], {}), len(spec.get("classes", ())) or 2)
    check_config(config, folder / CONFIG)
    if not any_head:
        check_classes(folder / CONFIG, spec.get("classes", ()))
    kind = networks.network_class(config, trained if networks.trains(spec) else AutoModel)
    transformers.logging.set_verbosity_error()  # it reports heads that are left out
    try:
        network, report = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, local_files_only=True, trust_remote_code=False,
            ignore_mismatched_sizes=True, output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # of any kind, for a damaged file
        raise TallmasksError(f"{folder}: transformers cannot load it: {one_line(error)[:200]}") from None
    head = head_parameters(network)
    odd = {*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}
    odd |= set() if any_head or not head else {*report["unexpected_keys"]}
    if wrong := sorted(odd.difference(head if any_head else ())):
        raise TallmasksError(
            f"{folder}: tensor {wrong[0]} ({len(wrong)} in total) is missing, unknown, or of another shape; expected "
            f"the model that `architecture` in params.yaml describes{', with a head for the classes' if head else ''}"
        )
    body, buffers = dict(network.base_model.named_parameters()), dict(network.base_model.named_buffers())
    saved = network.base_model.state_dict().keys()
    statistics = {name: one for name, one in buffers.items() if one.is_floating_point() and name in saved}
    arrays: list[Arrays] = []
    for tensors in (body, head, statistics):
        arrays.append({name: tensor.detach().numpy() for name, tensor in sorted(tensors.items())})
        if bad := [name for name, array in arrays[-1].items() if not np.isfinite(array).all()]:
            raise TallmasksError(f"{folder}: tensor {bad[0]!r} contains NaN or infinity; expected finite numbers")
    return arrays[0], arrays[1], arrays[2]


def body_and_head(network: Any, pooled: Any, checkpoint: Checkpoint, any_head: bool = False) -> tuple[Arrays, Arrays]:
    """The tensors of the body and of the head in float32.  With ``any_head``, heads of all kinds are left out instead.

    Args:
        network: on the meta device, with the head of the task if heads are trained.
        pooled: the same body, with a pooling layer if there is one; its tensors may be in the checkpoint.

    Raises TallmasksError if a tensor is missing or unknown, has another shape, or has values that are not finite.
    """
    wanted = {name: tuple(one.shape) for name, one in network.base_model.named_parameters()}
    heads = {} if any_head else {name: tuple(one.shape) for name, one in head_parameters(network).items()}
    renamed, first = {_renamed(name): name for name in checkpoint.names - checkpoint.buffers.keys()}, min(wanted)
    prefix = next((name.removesuffix(first) for name in sorted(renamed) if name.endswith(first)), "")
    names = {new.removeprefix(prefix): old for new, old in renamed.items() if new.startswith(prefix) or not any_head}
    allowed = {*dict(pooled.named_parameters(remove_duplicate=False)), *dict(pooled.named_buffers()), *heads}
    expected = "the model that `architecture` in params.yaml describes"
    check_names(checkpoint, names, {*wanted, *heads}, allowed, expected + (", with a head" if heads else ""))
    body, head = (
        {name: float_array(checkpoint, names[name], shape) for name, shape in sorted(shapes.items())}
        for shapes in (wanted, heads)
    )
    return body, head


def _renamed(name: str) -> str:
    """transformers' name of a layer norm's tensor in files older than transformers."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def check_config(ours: PretrainedConfig, path: Path) -> None:
    """Raise TallmasksError if config.json describes another network than `architecture`; dropout may differ."""
    content = json_of(path)
    try:
        theirs = AutoConfig.for_model(**content).to_dict()
    except Exception as error:
        raise TallmasksError(f"{path}: transformers cannot use it: {' '.join(str(error).split())[:200]}") from None
    mine = ours.to_dict()
    known = {key: theirs.get(key) for key in mine.keys() - {"pad_token_id"}}  # transformers ignores other keys
    for setting, found, expected in _differences(known, {key: mine[key] for key in known}):
        raise TallmasksError(
            f"{path}: {setting}: found {short(found)}, but `architecture` in params.yaml gives {short(expected)}; "
            "write this setting under `architecture`, or use weights that match it"
        )


def _differences(theirs: Any, ours: Any, *path: str) -> Iterator[tuple[str, Any, Any]]:
    """The settings that change what the body computes, also inside of others, with both values."""
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        theirs, ours = dict(enumerate(theirs)), dict(enumerate(ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}, key=str):
            if key not in BOOKKEEPING - {"pad_token_id"} and "drop" not in str(key):
                yield from _differences(theirs.get(key), ours.get(key), *path, str(key))
    elif theirs != ours:
        yield ".".join(path), theirs, ours


def check_classes(path: Path, classes: Sequence[str]) -> None:
    """Raise TallmasksError if config.json has other class names than the task, or another order."""
    theirs = class_names_of(path)
    if theirs and [name.casefold() for name in theirs] != [name.casefold() for name in classes]:
        raise TallmasksError(
            f"{path}: found the classes {', '.join(theirs)}, but the task has {', '.join(classes)}; use the "
            "same names in the same order"
        )
