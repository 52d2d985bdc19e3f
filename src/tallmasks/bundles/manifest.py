"""bundle.json: what a bundle says of itself, and the check of everything that somebody else's may say.

``digest`` is the sha256 of the canonical JSON (sorted keys, no spaces) of all the rest.  It finds damage; it is no
signature: whoever changes a bundle on purpose can compute it anew, so nothing here is believed for its sake.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, Strict, ValidationError
from pydantic import model_validator as checked

from tallmasks.bundles.codings import CODINGS, Coding, coding_of
from tallmasks.errors import TallmasksError, nearest, short
from tallmasks.io.content_digests import canonical
from tallmasks.io.dtypes import FLOATS
from tallmasks.io.plain_files import LARGEST_JSON
from tallmasks.vectors.checkpoints.buffers import Buffer, buffers_among
from tallmasks.vectors.checkpoints.hub_models import COMPANIONS as COMPANION_FILES

FORMATS = ("tallmasks/bundle/1", "tallmasks/bundle/2", "tallmasks/bundle/3", "tallmasks/bundle/4")
"""The second is of each task's own tensors, without a vector that they share; the third of any with buffers.  The
fourth, which is written, knows the base by the sha256 of every tensor; the others know the base's files alone."""
BUFFER: Final = "buffer"
MANIFEST, MERGED, CARD = "bundle.json", "merged.safetensors", "README.md"
MASKS, UPDATES, BASE, OWN, COMPANIONS = "masks/", "updates/", "base/", "own/", "companions/"
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
_LONGEST_NAME = 100
_OF_MASKS, _OF_OWN = ("dtype", "masks", "mask_lambda", "scale"), ("updates", "coding_texts")


Count = Annotated[int, Strict(), Field(ge=0)]
Single = Annotated[float, Field(ge=-_LARGEST_SINGLE, le=_LARGEST_SINGLE)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


Dtype = Literal["F16", "BF16", "F32", "F64", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"]


class _Object(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True)


class BundledTensor(_Object):
    """A tensor of the model: ``dtype`` is the base's, by safetensors' code; not stored where no model changed it.

    A buffer, which is no weight, is stored as each task has it; others are floats.  ``base_sha256`` is of the base's
    bytes.
    """

    shape: Annotated[tuple[Count, ...], Strict(False), FailFast()]
    dtype: Dtype
    stored: bool | Literal["buffer"]
    base_sha256: Sha256 | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """How many scales an int8 vector has for it: one for each row of the first axis, one without two axes."""
        return self.shape[0] if len(self.shape) > 1 else 1


class OwnTensor(_Object):
    """A tensor that only one task has; the task's file in `own/` stores it whole."""

    shape: Annotated[tuple[Count, ...], Strict(False), FailFast()]
    dtype: Dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class TaskModel(_Object):
    """How a task's model differs from the base, beside its weights.

    Attributes:
        own: tensors that the base lacks or has in another shape, named as in the base.
        own_file: the file that has them.
        missing: tensors of the base that the model does not have, of any dtype.
        names: the names in the task's files of tensors that have another name in the base's.
        companions: the sha256 of each small file beside its weights; in `companions/` unless the base has the same.
    """

    own: dict[str, OwnTensor] = {}
    own_file: str | None = None
    missing: Annotated[tuple[str, ...], Strict(False), FailFast()] = ()
    names: dict[str, str] = {}
    companions: dict[str, Sha256] = {}


class ModelSizes(_Object):
    """Bytes of the base's weight files, and of all the tasks' models as they were."""

    base: Count
    models: Count


class PartFile(_Object):
    """What a file of the bundle must be."""

    sha256: Sha256
    size: Count = Field(alias="bytes")


class BaseOrigin(_Object):
    """Where the base was: on the hub, on somebody's disk, or in the bundle itself (then ``files`` has its sha256)."""

    repository: str | None = None
    revision: str | None = None
    path: str | None = None
    included: Literal[True] | None = None
    sha256: dict[str, Sha256] | None = None


class Manifest(_Object):
    """A checked bundle.json; its keys are the fields, but for ``coding_texts``, which are ``codings`` there."""

    format: str
    method: str
    options: dict[str, Any]
    base: BaseOrigin
    dtype: Literal["float32", "bfloat16", "float16", "int8"] | None = None
    tensors: dict[str, BundledTensor]
    aliases: dict[str, str]
    tasks: Annotated[tuple[str, ...], Strict(False), FailFast(), Field(min_length=1)]
    masks: dict[str, str] = {}
    updates: dict[str, str] = {}
    coding_texts: dict[str, str] = Field(default={}, alias="codings")
    mask_lambda: dict[str, Single | None] = {}
    scale: dict[str, Single] = {}
    models: dict[str, TaskModel] = {}
    sizes: ModelSizes | None = None
    files: dict[str, PartFile]
    digest: str = ""

    @property
    def task_files(self) -> dict[str, str]:
        return self.masks or self.updates

    @cached_property
    def stored(self) -> dict[str, BundledTensor]:
        """The weights that the bundle holds values of."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.stored is True}

    @cached_property
    def buffers(self) -> dict[str, BundledTensor]:
        """What every task has of its own, whole and in the base's dtype."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.stored == BUFFER}

    def model(self, task: str) -> TaskModel:
        """How a task's model differs from the base; empty in formats before the fourth."""
        return self.models.get(task, TaskModel())

    @cached_property
    def free(self) -> set[str]:
        """The tensors that a module may lack, or have in another shape."""
        kinds = buffers_among({name: tensor.shape for name, tensor in self.tensors.items()})
        no_floats = {name for name, tensor in self.tensors.items() if tensor.dtype not in FLOATS}
        return no_floats.union(name for name, kind in kinds.items() if kind is not Buffer.AVERAGE)

    @cached_property
    def codings(self) -> dict[str, Coding]:
        """The coding of each stored tensor, where a task's file holds its own update; none where it holds masks."""
        codings = {name: coding_of(text, self.tensors[name].shape) for name, text in self.coding_texts.items()}
        return {name: coding for name, coding in codings.items() if coding is not None}

    @property
    def size(self) -> int:
        """Bytes of the files that it names, without an included base."""
        return sum(part.size for name, part in self.files.items() if not name.startswith(BASE))

    @property
    def base_files(self) -> dict[str, str]:
        """The sha256 of each of the base's weight files, in formats before the fourth; of an included base, of all its
        files."""
        included = {n.removeprefix(BASE): part.sha256 for n, part in self.files.items() if n.startswith(BASE)}
        return included if self.base.sha256 is None else self.base.sha256

    def check_task(self, task: str) -> None:
        """Raises TallmasksError where the bundle has no such task."""
        if task not in self.task_files:
            if not isinstance(task, str):
                raise TallmasksError(
                    f"found a {type(task).__name__}, expected the name of a task ({', '.join(self.tasks)}); the order"
                    " of arguments is apply_(module, task)"
                )
            raise TallmasksError(
                f"The bundle has no task {task!r}{nearest(str(task), self.tasks)}; it has {', '.join(self.tasks)}."
            )

    def to_bytes(self) -> bytes:
        """bundle.json, with its digest. Raises TypeError, ValueError or RecursionError for what JSON cannot say."""
        foreign = _OF_MASKS if self.updates else _OF_OWN
        value = self.model_dump(exclude={"digest", *foreign}, warnings=False)
        value = {key: inner for key, inner in value.items() if inner is not None}
        value["base"] = {key: inner for key, inner in value["base"].items() if inner is not None}
        models = {task: {key: inner for key, inner in one.items() if inner} for task, one in value["models"].items()}
        value["models"] = {task: one for task, one in models.items() if one}
        if not value["models"]:
            del value["models"]
        for tensor in value["tensors"].values():
            if tensor["base_sha256"] is None:
                del tensor["base_sha256"]
        value["digest"] = bundle_digest(value)
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()

    @checked(mode="after")
    def _fits(self) -> Self:
        own, tasks = bool(self.updates), set(self.tasks)
        digested = [tensor.base_sha256 is not None for tensor in self.tensors.values()]
        form = FORMATS[3] if all(digested) else format_of(own, bool(self.buffers))
        expect(self.format == form, "format", self.format, f"{form} for what is in it")
        expect(all(digested) or not any(digested), "base_sha256", "lacking", "that of every tensor")
        for name in (*_OF_MASKS, *_OF_OWN):
            expected = "nothing" if (name in _OF_MASKS) == own else "a value"
            expect((not getattr(self, name)) == (expected == "nothing"), name, getattr(self, name), expected)
        expect(len(tasks) == len(self.tasks), "tasks", self.tasks, "different names")
        key = UPDATES if own else MASKS
        for part, values in ((key, self.task_files), ("mask_lambda", self.mask_lambda), ("scale", self.scale)):
            expect((own and not values) or values.keys() == tasks, f"the keys of {part}", [*values], "the tasks")
        for task, file in self.task_files.items():
            safe = file.startswith(key) and file.count("/") == 1 and file.endswith(".safetensors") and is_safe(file)
            expect(safe, f"{key[:-1]}[{task!a}]", file, f"{key}<name>.safetensors")
        needed = {*self.task_files.values()} | ({MERGED} if self.dtype else set())
        expect(len(needed) == len(tasks) + bool(self.dtype), key, self.task_files, "a file for each task")
        needed |= self._check_models()
        kept = {COMPANIONS + sha256 for one in self.models.values() for sha256 in one.companions.values()}
        for name in self.files:
            mine = name in needed or name in kept or (name.startswith(BASE) and is_safe(name))
            expect(mine, "a file", name, f"{MERGED}, a task's or a file under {BASE}")
        expect(needed <= self.files.keys(), "files", sorted(self.files), f"{', '.join(sorted(needed))} among them")
        for name, tensor in self.tensors.items():
            fits = tensor.dtype in FLOATS or tensor.stored == BUFFER
            expect(fits, f"tensors[{name!a}].dtype", tensor.dtype, "floats where it is no buffer")
        for name in (*self.tensors, *self.aliases):
            expect("\n" not in name, "a tensor's name", name, "one line")
        for alias, name in self.aliases.items():
            expect(name in self.tensors, f"aliases[{alias!a}]", name, "the name of a tensor")
            expect(alias not in self.tensors, "aliases", alias, "another name than a tensor's own")
        if own:
            texts = self.coding_texts
            expect(texts and texts.keys() == self.stored.keys(), "codings", texts, "one of every stored tensor")
            for name, text in texts.items():
                expected = f"one of {', '.join(CODINGS)} that fits {list(self.tensors[name].shape)}"
                expect(name in self.codings, f"codings[{name!a}]", text, expected)
        base, included = self.base, any(name.startswith(BASE) for name in self.files)
        expect(included == bool(base.included), "base.included", base.included, "true where its files are here")
        of_files = not (included or form == FORMATS[3])
        expect(
            of_files == bool(base.sha256),
            "base.sha256",
            base.sha256,
            "that of each weight file" if of_files else "none",
        )
        return self

    def _check_models(self) -> set[str]:
        """The files of the tasks' own tensors."""
        expect(self.models.keys() <= {*self.tasks}, "the keys of models", [*self.models], "tasks")
        files: list[str] = []
        for task, one in self.models.items():
            key, file = f"models[{task!a}]", one.own_file
            expect(bool(one.own) == (file is not None), f"{key}.own_file", file, "a file where there are own tensors")
            if file is not None:
                safe = file.startswith(OWN) and file.count("/") == 1 and file.endswith(".safetensors") and is_safe(file)
                expect(safe, f"{key}.own_file", file, f"{OWN}<name>.safetensors")
                files.append(file)
            every = {*self.tensors, *self.aliases, *one.own}
            expect(one.names.keys() <= every, f"{key}.names", [*one.names], "tensors of the model")
            expect(not any("\n" in name for name in (*one.own, *one.names.values())), key, "\n", "names of one line")
            for name in one.companions:
                expect(is_companion(name), f"{key}.companions", name, "files that belong to a model's configuration")
        expect(len(files) == len(set(files)), "models", files, "a file for each task")
        return set(files)


def format_of(own: bool, buffers: bool) -> str:
    """The format that a bundle without digests of the base's tensors has."""
    return FORMATS[2 if buffers else int(own)]


def expect(correct: object, key: str, value: object, expected: str) -> None:
    if not correct:
        raise ValueError(f"{key} is {short(value)}; expected {expected}")


def bundle_digest(value: Mapping[str, Any]) -> str:
    """The digest of a bundle.json, whatever digest stands in it. Raises ValueError for what JSON cannot say."""
    rest = {key: inner for key, inner in value.items() if key != "digest"}
    return hashlib.sha256(canonical(rest).encode()).hexdigest()


def read_manifest(content: bytes, title: str) -> Manifest:
    """The manifest that the bytes of a bundle.json say.

    Raises TallmasksError, with the place, the key, what was found and what was expected.
    """
    if len(content) > LARGEST_JSON:
        raise TallmasksError(f"{title} is larger than {LARGEST_JSON} bytes; expected a bundle's description.")
    try:
        value = json.loads(content.decode())
        digest = bundle_digest(value)
    except (ValueError, RecursionError, AttributeError) as error:
        raise TallmasksError(
            f"{title} is no whole JSON object ({' '.join(str(error).split())[:150]}). Get the bundle again."
        ) from None
    if value.get("format") not in FORMATS:
        raise TallmasksError(
            f"{title}: format is {short(value.get('format'))}; expected one of {', '.join(FORMATS)}. It is something"
            " else, or of a later version of this package."
        )
    if value.get("digest") != digest:
        raise TallmasksError(
            f"{title}: digest is {short(value.get('digest'))}, and its content has {digest}: it was damaged or edited."
            " Get the bundle again."
        )
    if value.get("entropy_coding"):
        raise TallmasksError(
            f"{title}: the bundle is entropy-coded. Commit 92d6ff0 of tallmasks was the last to read that: export the"
            " tasks with it, and compress them again."
        )
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        raise TallmasksError(
            f"{title}: {_problem(error)}. The bundle was not made by this package, or was changed: get it again."
        ) from None


def _problem(error: ValidationError) -> str:
    """The first problem: the key, what was found, what is expected."""
    first = error.errors(include_url=False, include_context=False)[0]
    expected = re.sub(r"^(Value error, |\w+ should (be |match |have )?)", "", first["msg"])
    if not first["loc"]:
        return expected
    start, *inner = first["loc"]
    key = str(start) + "".join(f"[{part!a}]" for part in inner)
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "extra_forbidden":
        expected = "no such key"
    return f"{key} is {short(first['input'])}; expected {expected}"


def task_files(tasks: Collection[str], folder: str) -> dict[str, str]:
    """A file of each task, ``masks/<task>.safetensors`` for instance: percent-encoded, and different in capitals too.

    Raises TallmasksError for a task's name that is no Unicode text (half of a surrogate pair).
    """
    taken: set[str] = set()
    files = {}
    for task in tasks:
        try:
            stem = quote(task, safe="").replace("~", "%7E")
        except UnicodeEncodeError:
            raise TallmasksError(f"The task {task!a} is no text that a file can hold. Give it another name.") from None
        stem = f"%2E{stem[1:]}" if stem.startswith(".") else stem
        if not stem or len(stem) > _LONGEST_NAME or stem.lower() in taken:
            # "~" is in no encoded name, so that no other task has this one
            stem = f"{stem[:_LONGEST_NAME]}~{hashlib.sha256(task.encode()).hexdigest()[:16]}"
        taken.add(stem.lower())
        files[task] = f"{folder}{stem}.safetensors"
    return files


def is_companion(name: str) -> bool:
    """Whether a file of a model's folder is copied with its weights: configuration and tokenizer, never code."""
    *folders, last = name.split("/")
    ends = (".json", ".jinja") if folders else ()
    by_name = any(fnmatchcase(last, pattern) for pattern in COMPANION_FILES)
    return is_safe(name) and len(folders) <= 2 and (by_name or last.endswith(ends))


def is_safe(name: str) -> bool:
    """Whether a relative path from somebody's file stays in its folder, on every system."""
    parts = name.split("/")
    printable = name.isprintable() and not set('\\:*?"<>|') & set(name)
    return printable and all(part and part.strip() == part and part not in (".", "..") for part in parts)
