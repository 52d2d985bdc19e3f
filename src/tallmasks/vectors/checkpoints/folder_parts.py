"""Models stored in several folders, as sentence-transformers and diffusers write them. The tensor `linear.weight` in
the file of the part `2_Dense` is called `2_Dense/linear.weight` here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, short
from tallmasks.io.plain_files import is_safe, read_plain_json, reading, within
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

PART_INDEXES = ("modules.json", "model_index.json")  # of sentence-transformers and diffusers
ROUTER = "router_config.json"  # of sentence-transformers: models for queries and for documents
# Fields of Checkpoint that are keyed by tensor or file name.
_BY_NAME = ("tensors", "aliases", "files", "file_of", "companions", "metadata", "indexes", "arrays")


def parts_of(folder: Path, names: Collection[str]) -> list[str]:
    """The subfolders that contain parts of the model, from the index file in ``names``; "" is the folder itself. Raises
    TallmasksError if the index cannot be read, or names a folder elsewhere."""
    index = next((name for name in PART_INDEXES if name in names), None)
    if index is None:
        return [""]
    path = folder / index
    within(folder, index)
    with reading(path, "an index of a model's folders, as sentence-transformers or diffusers writes it"):
        content = read_plain_json(path)
        if index == PART_INDEXES[0]:
            parts = [str(module["path"]) for module in content]
            if ROUTER in names:
                within(folder, ROUTER)
                parts += [*read_plain_json(folder / ROUTER)["types"]]
        else:
            parts = [name for name, value in content.items() if isinstance(value, list) and value[0] is not None]
    if odd := [part for part in parts if part and ("/" in part or part.startswith(".") or not is_safe(part))]:
        raise TallmasksError(
            f"{path}: found the folder {short(odd[0])}; expected folders next to the index. Remove that entry, or move"
            " the folder there"
        )
    return list(dict.fromkeys(parts))


def part_prefix(file: str) -> str:
    """The prefix of tensor names for a weight file: `2_Dense/`, or empty in the main folder."""
    return file[: file.rfind("/") + 1]


def joined_parts(parts: Mapping[str, Checkpoint], **facts: Any) -> Checkpoint:
    """Join the checkpoints of a model's folders, given by folder; ``facts`` are further fields."""
    whole: dict[str, Any] = {name: {} for name in _BY_NAME}
    left_out = []
    for part, one in parts.items():
        prefix = f"{part}/" if part else ""
        left_out += [prefix + name for name in one.left_out]
        for field, of_whole in whole.items():
            for name, value in getattr(one, field).items():
                of_whole[prefix + name] = prefix + value if field in ("aliases", "file_of") else value
    whole["tensors"] = dict(sorted(whole["tensors"].items()))
    return Checkpoint(**facts, **whole, left_out=tuple(left_out))
