"""Labels of artifacts and of results: the recipe, and a digest of the content to detect damage. The file name of an
artifact contains the digest of its recipe."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.io.content_digests import CONTENT, canonical, content_of_json, content_of_tensors
from tallmasks.io.tensor_files import open_tensors, read_metadata

DIGEST_LENGTH = 12
ARTIFACT = re.compile(rf"(?P<slug>.+)-(?P<digest>[0-9a-f]{{{DIGEST_LENGTH}}})\.(?:safetensors|json)", re.DOTALL)
# libraries that can change the last bits of a result
DECIDING = ("numpy", "numba", "torch", "open_clip_torch", "pillow", "transformers", "tokenizers")
DECIDING_VARIABLES = ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
CHANGED = "has changed since it was written"
FILES = "sha256"  # key in provenance.json: sha256 of each results file, by name
CLOCK_NS = 1_000_000_000  # a file this young could change again without a new ctime


class Damaged(TallmasksError):
    """The content of ``path`` is not what was written. ``why`` follows the path in the message."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


@dataclass(frozen=True)
class Label:
    recipe: Mapping[str, Any]
    content: str


def digest_of(value: object) -> str:
    """The first 12 hexadecimal digits of the sha256 of `value` as canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:DIGEST_LENGTH]


def read_label(path: Path) -> Label:
    """Read the label of an artifact from its header, or of results from their provenance.json.

    JSON files, and the files listed in a provenance.json, are checked in full; safetensors files only by their header.

    Raises FileNotFoundError or NotADirectoryError if the path does not exist, and Damaged if it cannot be read, is
    incomplete, does not match the digest in its name, or if a results file has changed.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Damaged(path, "is not a regular file")
        if not os.access(path, os.R_OK, effective_ids=True):  # intact, for all we know: another user's file
            raise TallmasksError(f"{path}: cannot be read (Permission denied); change its permissions, or remove it")
        return _read_label(path)
    except OSError as error:
        if path.is_symlink():
            raise Damaged(path, f"is a link to {path.readlink()}, which cannot be read ({error.strerror})") from None
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
        raise Damaged(path, f"cannot be read ({error.strerror})") from None


def _read_label(path: Path) -> Label:
    try:
        fields: Mapping[str, Any] = read_metadata(path) if path.suffix == ".safetensors" else load_json(path)
    except TallmasksError as error:
        raise Damaged(path, str(error).removeprefix(f"{path} ")) from None
    named = ARTIFACT.fullmatch(path.name)
    try:
        recipe = fields["recipe"]  # in metadata it is JSON text
        label = Label(dict(json.loads(recipe) if isinstance(recipe, str) else recipe), fields[CONTENT])
        files = dict(fields.get(FILES, {})) if path.suffix == ".json" else {}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise Damaged(path, "has no valid recipe and content digest; this workflow did not write it") from None
    if path.suffix == ".json" and _content(fields) != label.content:
        raise Damaged(path, CHANGED)
    if named and digest_of(label.recipe) != named["digest"]:
        raise Damaged(path, "has a recipe whose digest is not the one in the file name")
    for name, expected in files.items():
        file = path.parent / name
        if not file.is_file():
            raise Damaged(file, "is missing")
        with file.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != expected:
                raise Damaged(
                    file, f"{CHANGED}: its sha256 is not the one in {path.name}; snakemake makes it again on request"
                )
    return label


def check(path: Path, remembered: Path | None = None) -> Label:
    """Like `read_label`, but read the whole file. Also raises Damaged if a value changed. ``remembered``: a folder with
    records of intact files, which are not read again while inode, size and times stay the same."""
    label = read_label(path)
    if path.suffix != ".safetensors":
        return label  # already read in full
    stat_now = path.stat()
    state = f"{stat_now.st_ino} {stat_now.st_size} {stat_now.st_mtime_ns} {stat_now.st_ctime_ns} {label.content}"
    if remembered:
        with suppress(OSError, ValueError):
            if (remembered / path.name).read_text() == state:
                return label
    try:
        tensors = open_tensors(path)
        content = content_of_tensors(tensors.infos, tensors.data, tensors.metadata)
    except TallmasksError as error:
        raise Damaged(path, str(error).removeprefix(f"{path} ")) from None
    if content != label.content:
        raise Damaged(path, CHANGED)
    if remembered and time.time_ns() - stat_now.st_ctime_ns > CLOCK_NS:
        with suppress(OSError, TallmasksError):  # if this fails, the file is read again next time
            atomic_write_text(remembered / path.name, state)
    return label


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON artifact. Raises as `check`."""
    read_label(path)
    return load_json(path)


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object without checking its digest. Raises FileNotFoundError, or Damaged if it is not an object."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(path, f"cannot be read as JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise Damaged(path, f"contains a JSON {type(value).__name__}; expected an object")
    return value


def machine(threads: int) -> str:
    """Hardware, threads and library versions that can change the last bits of a result, as text."""
    parts = [_hardware(), f"{threads} threads", *(f"{name} {_version(name)}" for name in DECIDING)]
    parts += [f"{name}={os.environ[name]}" for name in DECIDING_VARIABLES if name in os.environ]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # this process uses the GPU
        parts.append(f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    return ", ".join(parts)


@functools.cache
def _hardware() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    processor = {"model name": "", "flags": ""}
    for line in lines:  # CPUs with the same name can differ in their flags
        key, _, value = line.partition(":")
        processor |= {key.strip(): value.strip()} if key.strip() in processor else {}
    abilities = hashlib.sha256(processor["flags"].encode()).hexdigest()[:8]
    return f"{platform.machine()} {processor['model name'] or platform.processor()} ({abilities})"


_version = functools.cache(version)


def as_metadata(recipe: Mapping[str, Any]) -> dict[str, str]:
    """A recipe as metadata of a safetensors file, where values must be strings."""
    return {"recipe": canonical(recipe)}


def as_json(value: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON artifact or provenance.json: the value, its recipe and the digest of its content."""
    plain = json.loads(canonical({**value, "recipe": recipe}))  # as it will be read: tuples become lists
    return {**plain, CONTENT: _content(plain)}


def _content(fields: Mapping[str, Any]) -> str:
    """The content digest of a JSON artifact, or of a provenance.json, which includes the recipe."""
    return content_of_json(fields, (CONTENT,)) if FILES in fields else content_of_json(fields)


def write_json(path: Path, value: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
    """Write a JSON artifact atomically."""
    atomic_write_text(path, json.dumps(as_json(value, recipe), ensure_ascii=False))
