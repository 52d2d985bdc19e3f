"""bundle.json: what a bundle says of itself, and the check of everything that somebody else's may say.

``digest`` is the sha256 of the canonical JSON (sorted keys, no spaces) of all the rest.  It finds damage; it is no
signature: whoever changes a bundle on purpose can compute it anew, so nothing here is believed for its sake.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tallmasks.bundles.codings import CODINGS, Coding, coding_of
from tallmasks.bundles.part_names import BASE, MANIFEST, MASKS, MERGED, UPDATES, is_safe
from tallmasks.store.dtypes import FLOATS, OF_BUNDLES
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.plain_files import LARGEST_JSON
from tallmasks.store.seals import canonical

FORMAT = "tallmasks/bundle/1"
LATER_FORMAT = "tallmasks/bundle/2"
"""Of what the first format has no words for: each task's own tensors, without a vector that they share, and files that
are entropy-coded."""
CODER = "deflate"
"""The one way of entropy coding that there is."""
_MOST_VALUES = 1 << 60
_MOST_AXES = 64
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
_HEX = re.compile(r"[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,96}/[A-Za-z0-9_.-]{1,96}")
_REVISION = re.compile(r"[A-Za-z0-9_./-]{1,200}")
_COMMON = {"format", "method", "options", "base", "tensors", "aliases", "tasks", "files", "digest"}
_OF_MASKS = _COMMON | {"dtype", "masks", "mask_lambda", "scale"}
_OF_OWN = _COMMON | {"updates", "codings"}


class BundledTensor(NamedTuple):
    """A tensor of the model: ``dtype`` is the base's, by safetensors' code; not stored where no model changed it."""

    shape: tuple[int, ...]
    dtype: str
    stored: bool

    @property
    def size(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """How many scales an int8 vector has for it: one for each row of the first axis, one without two axes."""
        return self.shape[0] if len(self.shape) > 1 else 1


class PartFile(NamedTuple):
    """What a file of the bundle must be."""

    sha256: str
    size: int


class BaseOrigin(NamedTuple):
    """Where the base was: on the hub, on somebody's disk, or in the bundle itself."""

    repository: str | None
    revision: str | None
    path: str | None
    included: bool
    sha256: dict[str, str]
    """By weight file; of an included base, by its name under ``base/``."""


@dataclass(frozen=True)
class Manifest:
    """A checked bundle.json.

    Attributes:
        tensors: in sorted order.
        task_files: the file of each task.
        codings: of each stored tensor, where a task's file holds its own update; none where it holds masks.
        uncoded: where the files are entropy-coded, how many bytes each of them stands for.
    """

    method: str
    options: dict[str, Any]
    base: BaseOrigin
    dtype: str
    tensors: dict[str, BundledTensor]
    aliases: dict[str, str]
    tasks: tuple[str, ...]
    task_files: dict[str, str]
    mask_lambda: dict[str, float | None]
    scale: dict[str, float]
    files: dict[str, PartFile]
    codings: dict[str, Coding] = field(default_factory=dict)
    uncoded: dict[str, int] = field(default_factory=dict)

    @property
    def format(self) -> str:
        """Which of the formats has words for it."""
        return LATER_FORMAT if self.codings or self.uncoded else FORMAT

    @cached_property
    def stored(self) -> dict[str, BundledTensor]:
        """The tensors that the bundle holds values of."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.stored}

    def check_task(self, task: str) -> None:
        """Raises TallmasksError where the bundle has no such task."""
        if task not in self.task_files:
            raise TallmasksError(
                f"The bundle has no task {task!r}{nearest(str(task), self.tasks)}; it has {', '.join(self.tasks)}."
            )

    def to_bytes(self) -> bytes:
        """bundle.json, with its digest."""
        base = self.base
        origin: dict[str, Any] = {"repository": base.repository, "revision": base.revision, "path": base.path}
        origin = {key: value for key, value in origin.items() if value is not None}
        everything: dict[str, Any] = {
            "format": self.format,
            "method": self.method,
            "options": self.options,
            "base": origin | ({"included": True} if base.included else {"sha256": base.sha256}),
            "dtype": self.dtype,
            "tensors": {name: tensor._asdict() for name, tensor in self.tensors.items()},
            "aliases": self.aliases,
            "tasks": list(self.tasks),
            "masks": self.task_files,
            "updates": self.task_files,
            "codings": {name: coding.text for name, coding in self.codings.items()},
            "mask_lambda": self.mask_lambda,
            "scale": self.scale,
            "files": {name: {"sha256": part.sha256, "bytes": part.size} for name, part in self.files.items()},
        }
        value = {key: said for key, said in everything.items() if key in (_OF_OWN if self.codings else _OF_MASKS)}
        if self.uncoded:
            value["entropy_coding"] = {"coder": CODER, "uncoded_bytes": self.uncoded}
        value["digest"] = digest_of(value)
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def digest_of(value: Mapping[str, Any]) -> str:
    """The digest of a bundle.json, whatever digest stands in it. Raises ValueError for what JSON cannot say."""
    rest = {key: inner for key, inner in value.items() if key != "digest"}
    return hashlib.sha256(canonical(rest).encode()).hexdigest()


def read_manifest(content: bytes, place: str) -> Manifest:
    """The manifest that the bytes of a bundle.json say.

    Raises TallmasksError, with the place, the key, what was found and what was expected.
    """
    if len(content) > LARGEST_JSON:
        raise TallmasksError(f"{place} is larger than {LARGEST_JSON} bytes; expected a bundle's description.")
    try:
        value = json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
        digest = digest_of(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError) as error:
        raise TallmasksError(
            f"{place} is no whole JSON file ({' '.join(str(error).split())[:150]}). Get the bundle again."
        ) from None
    if not isinstance(value, dict) or value.get("format") not in (FORMAT, LATER_FORMAT):
        found = value.get("format") if isinstance(value, dict) else value
        raise TallmasksError(
            f"{place}: format is {_short(found)}; expected {FORMAT} or {LATER_FORMAT}. It is something else, or of a"
            " later version of this package."
        )
    if value.get("digest") != digest:
        raise TallmasksError(
            f"{place}: digest is {_short(value.get('digest'))}, and its content has {digest}: it was damaged or edited."
            " Get the bundle again."
        )
    return _Reader(place).manifest(value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands in it twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _short(value: object) -> str:
    try:
        text = ascii(value)
    except (RecursionError, ValueError):  # nested deeply, or an integer of thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}..."


class _Reader:
    """The values of a bundle.json, each of the type and within the bounds that the format gives it."""

    def __init__(self, place: str) -> None:
        self.place = place

    def expect(self, correct: object, key: str, found: object, expected: str) -> None:
        if not correct:
            raise TallmasksError(
                f"{self.place}: {key} is {_short(found)}; expected {expected}. The bundle was not made by this"
                " package, or was changed: get it again."
            )

    def mapping(self, value: object, key: str, keys: set[str] | None = None) -> dict[str, Any]:
        self.expect(isinstance(value, dict), key, value, "an object")
        assert isinstance(value, dict)
        if keys is not None:
            self.expect(value.keys() == keys, f"the keys of {key}", sorted(value), ", ".join(sorted(keys)))
        return value

    def each(self, value: object, key: str, read: Callable[[object, str], Any], keys: set[str] | None = None) -> dict:
        """An object whose values are all read by ``read``, in the order of their names."""
        found = self.mapping(value, key, keys)
        return {name: read(found[name], f"{key}[{name!a}]") for name in sorted(found)}

    def text(self, value: object, key: str) -> str:
        self.expect(isinstance(value, str), key, value, "text")
        return str(value)

    def number(self, value: object, key: str) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        self.expect(is_number and abs(value) <= _LARGEST_SINGLE, key, value, "a number")  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]

    def mask_lambda(self, value: object, key: str) -> float | None:
        return None if value is None else self.number(value, key)

    def count(self, value: object, key: str) -> int:
        is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_VALUES
        self.expect(is_count, key, value, f"an integer from 0 to {_MOST_VALUES}")
        return value  # type: ignore[return-value]

    def sha256(self, value: object, key: str) -> str:
        self.expect(isinstance(value, str) and _HEX.fullmatch(value), key, value, "64 hexadecimal digits")
        return str(value)

    def tensor(self, value: object, key: str) -> BundledTensor:
        found = self.mapping(value, key, {"shape", "dtype", "stored"})
        shape = found["shape"]
        self.expect(isinstance(shape, list) and len(shape) <= _MOST_AXES, f"{key}.shape", shape, "a list of counts")
        axes = tuple(self.count(axis, f"{key}.shape") for axis in shape)
        self.expect(math.prod(a or 1 for a in axes) <= _MOST_VALUES, f"{key}.shape", shape, "less than 2^60 values")
        dtype, stored = found["dtype"], found["stored"]
        self.expect(isinstance(dtype, str) and dtype in FLOATS, f"{key}.dtype", dtype, f"one of {', '.join(FLOATS)}")
        self.expect(isinstance(stored, bool), f"{key}.stored", stored, "true or false")
        return BundledTensor(axes, dtype, stored)

    def part(self, value: object, key: str) -> PartFile:
        found = self.mapping(value, key, {"sha256", "bytes"})
        return PartFile(self.sha256(found["sha256"], f"{key}.sha256"), self.count(found["bytes"], f"{key}.bytes"))

    def origin(self, value: object, files: dict[str, PartFile]) -> BaseOrigin:
        found = self.mapping(value, "base")
        known = {"repository", "revision", "path", "included", "sha256"}
        self.expect(found.keys() <= known, "the keys of base", sorted(found), f"some of {', '.join(sorted(known))}")
        texts = {key: self.text(found[key], f"base.{key}") for key in known - {"included", "sha256"} & found.keys()}
        repository, revision = texts.get("repository"), texts.get("revision")
        if repository is not None or revision is not None:
            well = (
                repository and _REPOSITORY.fullmatch(repository) and ".." not in repository and "--" not in repository
            )
            self.expect(well, "base.repository", repository, "a repository of the hub, organisation/name")
            safe = revision and _REVISION.fullmatch(revision) and ".." not in revision
            self.expect(safe, "base.revision", revision, "a revision of that repository")
        included = {name.removeprefix(BASE): part.sha256 for name, part in files.items() if name.startswith(BASE)}
        if "included" in found or included:
            self.expect(found.get("included") is True, "base.included", found.get("included"), "true, or nothing")
            self.expect("sha256" not in found, "base.sha256", found.get("sha256"), "nothing: the base is included")
            digests = included
        else:
            digests = self.each(found.get("sha256"), "base.sha256", self.sha256)
        self.expect(digests, "base.sha256", digests, "the sha256 of each weight file")
        return BaseOrigin(repository, revision, texts.get("path"), "included" in found, digests)

    def task_files(self, value: object, folder: str, tasks: set[str]) -> dict[str, str]:
        key = folder.rstrip("/")
        found = self.each(value, key, self.text, tasks)
        for task, name in found.items():
            own = name.startswith(folder) and name.count("/") == 1 and name.endswith(".safetensors") and is_safe(name)
            self.expect(own, f"{key}[{task!a}]", name, f"{folder}<name>.safetensors")
        self.expect(len(set(found.values())) == len(found), key, list(found.values()), "a file for each task")
        return found

    def codings(self, value: object, tensors: dict[str, BundledTensor]) -> dict[str, Coding]:
        stored = {name for name, tensor in tensors.items() if tensor.stored}
        self.expect(stored, "tensors", list(tensors), "some that are stored")
        found = self.each(value, "codings", self.text, stored)
        codings = {name: coding_of(text, tensors[name].shape) for name, text in found.items()}
        for name, coding in codings.items():
            expected = f"one of {', '.join(CODINGS)} that fits {list(tensors[name].shape)}"
            self.expect(coding is not None, f"codings[{name!a}]", found[name], expected)
        return {name: coding for name, coding in codings.items() if coding is not None}

    def uncoded(self, value: object, files: set[str]) -> dict[str, int]:
        found = self.mapping(value, "entropy_coding", {"coder", "uncoded_bytes"})
        self.expect(found["coder"] == CODER, "entropy_coding.coder", found["coder"], CODER)
        return self.each(found["uncoded_bytes"], "entropy_coding.uncoded_bytes", self.count, files)

    def aliases(self, value: object, tensors: dict[str, BundledTensor]) -> dict[str, str]:
        found = self.each(value, "aliases", self.text)
        for alias, name in found.items():
            self.expect(name in tensors, f"aliases[{alias!a}]", name, "the name of a tensor")
            self.expect(alias not in tensors, "aliases", alias, "another name than a tensor's own")
        return found

    def manifest(self, value: dict[str, Any]) -> Manifest:
        later = value["format"] == LATER_FORMAT
        own, coded = later and "codings" in value, later and "entropy_coding" in value
        self.expect(own or coded or not later, "format", value["format"], f"{FORMAT}, as for all that is in it")
        self.mapping(value, MANIFEST, (_OF_OWN if own else _OF_MASKS) | ({"entropy_coding"} if coded else set()))
        tasks = value["tasks"]
        are_names = isinstance(tasks, list) and bool(tasks) and all(isinstance(task, str) for task in tasks)
        self.expect(are_names and len(set(tasks)) == len(tasks), "tasks", tasks, "a list of different names")
        tensors = self.each(value["tensors"], "tensors", self.tensor)
        dtype = "float32" if own else self.text(value["dtype"], "dtype")
        self.expect(dtype in OF_BUNDLES, "dtype", dtype, f"one of {', '.join(OF_BUNDLES)}")
        folder = UPDATES if own else MASKS
        task_files = self.task_files(value[folder.rstrip("/")], folder, set(tasks))
        files = self.each(value["files"], "files", self.part)
        needed = [*task_files.values()] if own else [MERGED, *task_files.values()]
        for name in files:
            known = name in needed or (name.startswith(BASE) and is_safe(name))
            self.expect(known, "a file", name, f"{needed[0]}, another task's or a file under {BASE}")
        for name in needed:
            self.expect(name in files, "files", sorted(files), f"{name} among them")
        uncoded = self.uncoded(value["entropy_coding"], set(needed)) if coded else {}
        lambdas = value.get("mask_lambda", dict.fromkeys(tasks))
        scales = value.get("scale", dict.fromkeys(tasks, 1.0))
        return Manifest(
            method=self.text(value["method"], "method"),
            options=self.mapping(value["options"], "options"),
            base=self.origin(value["base"], files),
            dtype=dtype,
            tensors=tensors,
            aliases=self.aliases(value["aliases"], tensors),
            tasks=tuple(tasks),
            task_files=task_files,
            mask_lambda=self.each(lambdas, "mask_lambda", self.mask_lambda, set(tasks)),
            scale=self.each(scales, "scale", self.number, set(tasks)),
            files=files,
            codings=self.codings(value["codings"], tensors) if own else {},
            uncoded=uncoded,
        )
