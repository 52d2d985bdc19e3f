"""Models stored in several folders, as sentence-transformers and diffusers write them. The tensor `linear.weight` in
the file of the part `2_Dense` is called `2_Dense/linear.weight` here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, short
from tallmasks.io.plain_files import is_safe, read_plain_json, reading, within
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint

# Of sentence-transformers, of its Router (models for queries and for documents), and of diffusers.
PART_INDEXES = ("modules.json", "router_config.json", "model_index.json")
# Fields of Checkpoint that are keyed by tensor or file name.
_BY_NAME = ("tensors", "aliases", "files", "file_of", "companions", "metadata", "indexes", "arrays")


def parts_of(folder: Path, names: Collection[str]) -> list[str]:
    """The subfolders that contain parts of the model, from the index files in ``names``; "" is the folder itself.
    Raises TallmasksError if an index cannot be read, or names a folder elsewhere."""
    indexes = [name for name in PART_INDEXES if name in names]
    parts = dict.fromkeys(part for index in indexes for part in _listed(folder, index))
    return list(parts) if indexes else [""]


def _listed(folder: Path, index: str) -> list[str]:
    path = folder / index
    within(folder, index)
    with reading(path, "an index of a model's folders, as sentence-transformers or diffusers writes it"):
        content = read_plain_json(path)
        if index == "modules.json":
            parts = [str(module["path"]) for module in content]
        elif index == "router_config.json":
            parts = [*content["types"]]
        else:
            parts = [name for name, value in content.items() if isinstance(value, list) and value[0] is not None]
    if odd := [part for part in parts if part and ("/" in part or part.startswith(".") or not is_safe(part))]:
        raise TallmasksError(
            f"{path}: found the folder {short(odd[0])}; expected folders next to the index. Remove that entry, or move"
            " the folder there"
        )
    return parts


def part_prefix(file: str) -> str:
    """The prefix of tensor names for a weight file: `2_Dense/`, or empty in the main folder."""
    return file[: file.rfind("/") + 1]


def part_of(whole: Checkpoint, part: str) -> Checkpoint:
    """The tensors and companions of one of a model's folders, under their names there."""
    prefix, folders = f"{part}/" if part else "", {part_prefix(file) for file in whole.files}

    def inside(of_whole: Mapping[str, Any]) -> dict[str, Any]:
        owners = {name: max(filter(name.startswith, folders), key=len, default="") for name in of_whole}
        return {name.removeprefix(prefix): of_whole[name] for name, owner in owners.items() if owner == prefix}

    aliases = {alias: name.removeprefix(prefix) for alias, name in inside(whole.aliases).items()}
    tensors, arrays, companions = map(inside, (whole.tensors, whole.arrays, whole.companions))
    return replace(whole, tensors=tensors, aliases=aliases, arrays=arrays, companions=companions)


def joined_parts(parts: Mapping[str, Checkpoint], base: Checkpoint | None, **attributes: Any) -> Checkpoint:
    """Join the checkpoints of a model's folders, given by folder; ``attributes``: other fields of the `Checkpoint`. If
    some are LoRAs, on their parts of ``base``, the whole is one: the tensors of the other folders replace the
    base's."""
    whole: dict[str, Any] = {name: {} for name in _BY_NAME}
    left_out = []
    for part, one in parts.items():
        prefix = f"{part}/" if part else ""
        left_out += [prefix + name for name in one.left_out]
        for field, of_whole in whole.items():
            for name, value in getattr(one, field).items():
                of_whole[prefix + name] = prefix + value if field in ("aliases", "file_of") else value
    whole["tensors"] = dict(sorted(whole["tensors"].items()))
    fields = {**attributes, **whole, "left_out": tuple(left_out)}
    loras = {part: one for part, one in parts.items() if isinstance(one, LoraCheckpoint)}
    if not loras or base is None:
        return Checkpoint(**fields)
    products: dict[str, Any] = {}
    replaced: dict[str, str] = {}
    for part, one in parts.items():
        prefix = f"{part}/" if part else ""
        own = one.whole if isinstance(one, LoraCheckpoint) else {name: name for name in one.tensors}
        replaced |= {prefix + name: prefix + stored for name, stored in own.items()}
        if isinstance(one, LoraCheckpoint):
            products |= {prefix + name: product for name, product in one.products.items()}
    adapter = joined_parts({**parts, **{part: one.adapter for part, one in loras.items()}}, None, **attributes)
    return LoraCheckpoint(**fields, base=base, adapter=adapter, products=products, whole=replaced)
