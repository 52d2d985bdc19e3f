"""The files that are copied with a model's weights: configuration, tokenizers, license. Never code or weights."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import is_safe, within
from tallmasks.vectors.checkpoints.folder_parts import PART_INDEXES

TOKENIZER = "tokenizer.json"
VOCABULARIES = (
    TOKENIZER, "*.tokenizer", "*vocab*.json", "vocab.txt", "vocab.bpe", "dict.txt", "*.model", "*.spm", "*.tiktoken",
    "tekken.json", "added_tokens.json",
)  # fmt: skip
COMPANIONS = (
    "config.json", "generation_config.json", "open_clip_config.json", "*processor_config.json", "chat_template.json",
    "chat_template.jinja", *VOCABULARIES, "tokenizer_config.json", "special_tokens_map.json",
    "merges.txt", "bpe.codes", "normalizer.json", "emoji.json", "byte_maps.json", "word_shape.json",
    "word_pronunciation.json", "sentence_*_config.json", "config_sentence_transformers.json", *PART_INDEXES,
    "LICENSE*", "NOTICE*", "USE_POLICY*",
)  # fmt: skip
IN_PARTS = (*COMPANIONS, "*.json")  # in folders that the model's index lists
_IN_SUBFOLDERS = (*COMPANIONS, "*.jinja")  # in other folders, such as a second tokenizer's
_DEEPEST = 2  # folders inside a subfolder's path; a bundle allows this inside a part's folder too
_LARGEST = 1 << 26


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_companion(path: str) -> bool:
    """Whether a companion can have this path in the model's folder."""
    *folders, name = path.split("/")
    patterns = (*IN_PARTS, *_IN_SUBFOLDERS) if folders else COMPANIONS
    return is_safe(path) and len(folders) <= 2 * _DEEPEST and matches(name, patterns)


def companions_in(
    folder: Path, names: Collection[str], patterns: Sequence[str] = COMPANIONS, parts: Collection[str] = ()
) -> tuple[dict[str, Path], list[str]]:
    """The files to copy with a model, and the rest of its folder, with a reason where one is needed.

    A subfolder comes along if it contains companions only. ``names``: files of the folder itself that match
    ``patterns`` come along; ``parts``: subfolders to skip.
    """
    chosen, left_out = {}, []
    for name in sorted(filter(is_visible, names)):
        if (why := _problem(folder, name, matches(name, patterns))) is None:
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
