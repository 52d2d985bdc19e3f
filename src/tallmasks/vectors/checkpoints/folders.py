"""The files of a model's folder besides its weights: several folders for the parts of a model, as sentence-transformers
and diffusers write them (the tensor `linear.weight` in the file of the part `2_Dense` is called `2_Dense/linear.weight`
here), and the configuration, tokenizers and license that are copied with it. Never code or weights."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from tallmasks.errors import TallmasksError, short
from tallmasks.io.plain_files import is_safe, read_plain_json, reading, within
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, LoraCheckpoint

# Of sentence-transformers, of its Router (models for queries and for documents), and of diffusers.
PART_INDEXES = ("modules.json", "router_config.json", "model_index.json")
TOKENIZER = "tokenizer.json"
VOCABULARIES = (
    TOKENIZER, "*.tokenizer", "*vocab*.json", "vocab.txt", "vocab.bpe", "dict.txt", "*.model", "*.spm", "*.tiktoken",
    "tekken.json", "added_tokens.json",
)  # fmt: skip
TOKENIZERS = (
    *VOCABULARIES, "tokenizer_config.json", "special_tokens_map.json", "chat_template.json", "chat_template.jinja",
    "merges.txt", "bpe.codes", "normalizer.json", "emoji.json", "byte_maps.json", "word_shape.json",
    "word_pronunciation.json",
)  # fmt: skip
CONFIG = "config.json"
COMPANIONS = (
    CONFIG, "generation_config.json", "open_clip_config.json", "*processor_config.json", *TOKENIZERS,
    "sentence_*_config.json", "config_sentence_transformers.json", *PART_INDEXES,
    "LICENSE*", "NOTICE*", "USE_POLICY*",
)  # fmt: skip
IN_PARTS = (*COMPANIONS, "*.json")  # in folders that the model's index lists
IN_MAIN_PART = (*COMPANIONS, "*_config.json")  # in the main folder, if the index lists it
_IN_SUBFOLDERS = (*COMPANIONS, "*.jinja")  # in other folders, such as a second tokenizer's
_DEEPEST = 2  # folders inside a subfolder's path; a bundle allows this inside a part's folder too
_LARGEST = 1 << 26


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_copied(name: str, patterns: Sequence[str]) -> bool:
    """Not the index of shards, nor the configuration of a LoRA, whose base transformers would load."""
    return matches(name, patterns) and not matches(name, ("*.index.json", ADAPTER_CONFIG))


def is_companion(path: str) -> bool:
    """Whether a companion can have this path in the model's folder."""
    *folders, name = path.split("/")
    patterns = (*IN_PARTS, *_IN_SUBFOLDERS) if folders else IN_MAIN_PART
    return is_safe(path) and len(folders) <= 2 * _DEEPEST and _is_copied(name, patterns)


def companions_in(
    folder: Path, names: Collection[str], patterns: Sequence[str] = COMPANIONS, parts: Collection[str] = ()
) -> tuple[dict[str, Path], list[str]]:
    """The files to copy with a model, and the rest of its folder, with a reason where one is needed.

    A subfolder comes along if it contains companions only. ``names``: files of the folder itself that match
    ``patterns`` come along; ``parts``: subfolders to skip.
    """
    chosen, left_out = {}, []
    for name in sorted(filter(is_visible, names)):
        if (why := _problem(folder, name, _is_copied(name, patterns))) is None:
            chosen[name] = folder / name
        else:
            left_out.append(f"{name} ({why})" if why else name)
    subfolders = {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    for sub in sorted(filter(is_visible, subfolders.difference(parts))):
        inside: list[str] = []
        for path in filter(is_visible, _files_below(folder, sub)):
            if (why := _problem(folder, path, _fits_in_subfolder(path))) is not None:
                left_out.append(f"{sub}/ (contains {path.removeprefix(f'{sub}/')}{f', {why}' if why else ''})")
                break
            inside.append(path)
        else:
            chosen |= {path: folder / path for path in inside}
    return chosen, left_out


def subfolders_of_companions(paths: Collection[str], parts: Collection[str] = ()) -> list[str]:
    """The paths in subfolders that contain companions only, as `companions_in` chooses them."""
    chosen = []
    for sub, group in groupby(sorted(path for path in paths if "/" in path), lambda path: path.split("/")[0]):
        inside = list(filter(is_visible, group))
        if sub not in parts and all(map(_fits_in_subfolder, inside)):
            chosen += inside
    return chosen


def is_visible(path: str) -> bool:
    parts = path.split("/")
    return not any(part.startswith(".") for part in parts) and not parts[-1].startswith("README")


def _fits_in_subfolder(path: str) -> bool:
    return path.count("/") <= _DEEPEST and matches(path.rpartition("/")[2], _IN_SUBFOLDERS)


def _files_below(folder: Path, sub: str) -> Iterator[str]:
    """The paths of all files and links in a subfolder. Links to folders are not followed."""
    for inner, folders, files in os.walk(folder / sub):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if Path(inner, name).is_symlink()]
        yield from (Path(inner, name).relative_to(folder).as_posix() for name in sorted([*files, *links]))


def _problem(folder: Path, path: str, fits: bool) -> str | None:
    """Why a file is not copied: "" for its name, None if it is. Links out of the folder could expose a secret."""
    if not fits:
        return ""
    if not is_safe(path):
        return "its name has characters that some systems do not allow"
    try:
        target = within(folder, path)
    except TallmasksError:
        return "a link out of the folder"
    except (OSError, RuntimeError):  # links in a circle
        return "no plain file"
    if not target.is_file():
        return "no plain file"
    return f"larger than {_LARGEST >> 20} MiB" if target.stat().st_size > _LARGEST else None


# Fields of Checkpoint that are keyed by tensor or file name.
_BY_NAME = ("tensors", "aliases", "files", "file_of", "companions", "metadata", "indexes", "arrays")


def parts_of(folder: Path, names: Collection[str]) -> list[str]:
    """The subfolders that contain parts of the model, from the index files in ``names``; "" is the folder itself. A
    part can have an index too. Raises TallmasksError if an index cannot be read, or names a folder elsewhere."""
    indexes = [name for name in PART_INDEXES if name in names]
    parts: dict[str, None] = {}
    for part in (part for index in indexes for part in _listed(folder, index)):
        parts[part] = None
        if part and (folder / part).is_dir() and not (folder / part).is_symlink():  # links could lead in circles
            inside = [name for name in PART_INDEXES if (within(folder, part) / name).is_file()]
            parts |= dict.fromkeys(f"{part}/{inner}" for inner in parts_of(folder / part, inside) if inner)
    return list(parts) if indexes else [""]


def _listed(folder: Path, index: str) -> list[str]:
    path = folder / index
    within(folder, index)
    with reading(path, "an index of a model's folders, as sentence-transformers or diffusers writes it"):
        content = read_plain_json(path)
        if index == "modules.json":
            paths = (PurePosixPath(str(module["path"])) for module in content)
            parts = ["" if path == PurePosixPath() else str(path) for path in paths]
        elif index == "router_config.json":
            parts = [*content["types"]]
        else:
            parts = [name for name, value in content.items() if isinstance(value, list) and value[0] is not None]
    if odd := [part for part in parts if part and ("/" in part or part.startswith(".") or not is_safe(part))]:
        raise TallmasksError(
            f"{path}: found the folder {short(odd[0])}; expected folders next to the index. Move the folder there, and"
            " change the entry"
        )
    return parts


def part_prefix(file: str) -> str:
    """The prefix of tensor names for a weight file: `2_Dense/`, or empty in the main folder."""
    return file[: file.rfind("/") + 1]


def part_of(model: Checkpoint, part: str) -> Checkpoint:
    """The tensors and companions of one of a model's folders, under their names there."""
    prefix, folders = f"{part}/" if part else "", {part_prefix(file) for file in model.files}

    def inside(by_name: Mapping[str, Any]) -> dict[str, Any]:
        owners = {name: max(filter(name.startswith, folders), key=len, default="") for name in by_name}
        return {name.removeprefix(prefix): by_name[name] for name, owner in owners.items() if owner == prefix}

    aliases = {alias: name.removeprefix(prefix) for alias, name in inside(model.aliases).items()}
    tensors, arrays, companions = map(inside, (model.tensors, model.arrays, model.companions))
    return replace(model, tensors=tensors, aliases=aliases, arrays=arrays, companions=companions)


def joined_parts(parts: Mapping[str, Checkpoint], base: Checkpoint | None, **attributes: Any) -> Checkpoint:
    """Join the checkpoints of a model's folders, given by folder; ``attributes``: other fields of the `Checkpoint`. If
    some are LoRAs, on their parts of ``base``, so is the model: the tensors of the other folders replace the
    base's."""
    joined: dict[str, Any] = {name: {} for name in _BY_NAME}
    left_out = []
    for part, one in parts.items():
        prefix = f"{part}/" if part else ""
        left_out += [prefix + name for name in one.left_out]
        for field, joined_field in joined.items():
            for name, value in getattr(one, field).items():
                joined_field[prefix + name] = prefix + value if field in ("aliases", "file_of") else value
    joined["tensors"] = dict(sorted(joined["tensors"].items()))
    fields = {**attributes, **joined, "left_out": tuple(left_out)}
    loras = {part: one for part, one in parts.items() if isinstance(one, LoraCheckpoint)}
    if not loras or base is None:
        return Checkpoint(**fields)
    products: dict[str, Any] = {}
    replaced: dict[str, str] = {}
    for part, one in parts.items():
        prefix = f"{part}/" if part else ""
        names = one.replaced if isinstance(one, LoraCheckpoint) else {name: name for name in one.tensors}
        replaced |= {prefix + name: prefix + stored for name, stored in names.items()}
        if isinstance(one, LoraCheckpoint):
            products |= {prefix + name: product for name, product in one.products.items()}
    adapter = joined_parts({**parts, **{part: one.adapter for part, one in loras.items()}}, None, **attributes)
    return LoraCheckpoint(**fields, base=base, adapter=adapter, products=products, replaced=replaced)
