"""bundle.json and its validation; the file may come from an untrusted source.

``digest``, the sha256 of the canonical JSON (sorted keys, no spaces) of all other keys, detects damage only: it is no
signature, and no check is skipped because it matches.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import accumulate, islice
from typing import Annotated, Any, Final, Literal, Self, TypeVar
from urllib.parse import quote

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    Strict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic import model_validator as checked

from tallmasks.bundles.updates import Coding
from tallmasks.errors import TallmasksError, name_some, nearest, short
from tallmasks.io.content_digests import canonical
from tallmasks.io.dtypes import FLOATS
from tallmasks.io.plain_files import LARGEST_JSON, is_safe
from tallmasks.io.tensor_files import METADATA, NAME, is_name
from tallmasks.vectors.checkpoints.buffers import Buffer, buffers_among
from tallmasks.vectors.checkpoints.folders import is_companion
from tallmasks.vectors.checkpoints.weight_files import INDEX, SAFETENSORS
from tallmasks.vectors.multiples import piece_count

FORMAT: Final = "tallmasks/bundle/3"
BUFFER: Final = "buffer"
MANIFEST, MERGED, CARD = "bundle.json", "merged.safetensors", "README.md"
MASKS, UPDATES, BASE, OWN, COMPANIONS = "masks/", "updates/", "base/", "own/", "companions/"
_LARGEST_SINGLE, _LARGEST_STEP, _MOST_VALUES = float(np.finfo(np.float32).max), 1e6, 1 << 62
_LONGEST_NAME = 100
_OF_MASKS = ("masks", "mask_lambda", "density")
"""Fields of bundles of masks only."""

Count = Annotated[int, Strict(), Field(ge=0, le=2**62)]
Single = Annotated[float, Field(ge=-_LARGEST_SINGLE, le=_LARGEST_SINGLE)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Shape = Annotated[tuple[Count, ...], Strict(False), FailFast(), Field(max_length=64)]
Dtype = Literal[
    "F16", "BF16", "F32", "F64", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "C64", "F8_E4M3",
    "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4",
]  # fmt: skip


def _until_an_error(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validates a dictionary key by key, because pydantic collects the errors of all keys."""
    if not isinstance(value, dict):
        return validate(value)
    return {key: inner for item in value.items() for key, inner in validate(dict([item])).items()}


_Value = TypeVar("_Value")
ByName = Annotated[dict[str, _Value], WrapValidator(_until_an_error)]


class _Object(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True)

    @checked(mode="before")
    @classmethod
    def _one_unknown_key(cls, value: Any) -> Any:
        """Drops all unknown keys but the first, because pydantic collects an error for each."""
        if not isinstance(value, dict):
            return value
        known = {*cls.model_fields, *(field.alias for field in cls.model_fields.values())}
        others = {*islice((key for key in value if key not in known), 1, None)}
        return {key: inner for key, inner in value.items() if key not in others}


class BundledTensor(_Object):
    """A tensor of the base, under its safetensors dtype code. ``stored``: False if no model changed it, "buffer" if
    every task's values are stored whole, in this dtype, which then may be any. ``base_sha256``: of the base's bytes."""

    shape: Shape
    dtype: Dtype
    stored: bool | Literal["buffer"]
    base_sha256: Sha256

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class TaskOnlyTensor(_Object):
    """A tensor that only one task has; stored whole in the task's file in `own/`."""

    shape: Shape
    dtype: Dtype


class OriginalFile(_Object):
    """A weight file of a task's model, which `export` writes again.

    Attributes:
        sha256: of the whole file.
        header: sha256 of what precedes the data; stored in `companions/`.
        copies: the model's tensor, by name in the file, of those that only the file has twice.
    """

    sha256: Sha256
    header: Sha256
    copies: ByName[str] = {}


class TaskModel(_Object):
    """How a task's model differs from the base, apart from its weights.

    Attributes:
        own: tensors that the base lacks or has in another shape, under the base's names.
        own_file: the file that stores them.
        missing: tensors of the base, of any dtype, that the model lacks.
        names: tensor names in the task's files, by name in the base's files, where they differ.
        companions: sha256 of the configuration and tokenizer files; stored in `companions/` unless the base has them.
        originals: the weight files by name, in a lossless bundle of safetensors files.
    """

    own: ByName[TaskOnlyTensor] = {}
    own_file: str | None = None
    missing: Annotated[tuple[str, ...], Strict(False), FailFast()] = ()
    names: ByName[str] = {}
    companions: ByName[Sha256] = {}
    originals: ByName[OriginalFile] = {}


class ModelSizes(_Object):
    """Bytes of the base's weight files, and of all original models together."""

    base: Count
    models: Count


class PartFile(_Object):
    sha256: Sha256
    size: Count = Field(alias="bytes")


class BaseOrigin(_Object):
    """Where the base is: on the hub, on disk, or included in the bundle."""

    repository: str | None = None
    revision: str | None = None
    path: str | None = None
    included: Literal[True] | None = None


class Manifest(_Object):
    """A validated bundle.json, with the field names as its keys.

    Attributes:
        coding: what the streams of `updates/` or of merged.safetensors are.
        row_step: smallest step of a row, in units of its root mean square in theta_0 (see `vectors.multiples`); 0 if
            each piece has its stored step.
        masks, updates: the file of each task; one of the two is empty.
        noise: by task, the relative error of a tensor, as root mean square over the tensors; empty if unknown.
        density: by task, the fraction of the stored values that its mask keeps.
    """

    format: str
    method: str
    options: dict[str, Any]
    base: BaseOrigin
    coding: Coding
    row_step: Annotated[float, Field(ge=0, le=_LARGEST_STEP)] = 0.0
    tensors: ByName[BundledTensor]
    aliases: ByName[str]
    tasks: Annotated[tuple[str, ...], Strict(False), FailFast(), Field(min_length=1)]
    masks: ByName[str] = {}
    updates: ByName[str] = {}
    mask_lambda: ByName[Single] = {}
    density: ByName[Single] = {}
    noise: ByName[Single] = {}
    models: ByName[TaskModel] = {}
    sizes: ModelSizes | None = None
    files: ByName[PartFile]
    digest: str = ""

    @property
    def task_files(self) -> dict[str, str]:
        return self.masks or self.updates

    @cached_property
    def encoded(self) -> dict[str, BundledTensor]:
        """Tensors that tasks change. The streams are in the order of their names, not in that of bundle.json."""
        return {name: tensor for name, tensor in sorted(self.tensors.items()) if tensor.stored is True}

    @cached_property
    def buffers(self) -> dict[str, BundledTensor]:
        """Tensors stored whole for every task, in the base's dtype."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.stored == BUFFER}

    @property
    def is_exact(self) -> bool:
        """Whether every tensor of every model comes back bit for bit."""
        return self.coding != "multiples"

    def model(self, task: str) -> TaskModel:
        return self.models.get(task, TaskModel())

    @cached_property
    def may_differ(self) -> set[str]:
        """The tensors that a module may lack or have in another shape: non-floats, and buffers other than averages."""
        kinds = buffers_among({name: tensor.shape for name, tensor in self.tensors.items()})
        not_floats = {name for name, tensor in self.tensors.items() if tensor.dtype not in FLOATS}
        return not_floats.union(name for name, kind in kinds.items() if kind is not Buffer.AVERAGE)

    @cached_property
    def first_piece(self) -> dict[str, int]:
        """The number of each stored tensor's first piece, among all pieces in the order of the names."""
        counts = accumulate((piece_count(tensor.size) for tensor in self.encoded.values()), initial=0)
        return dict(zip(self.encoded, counts, strict=False))

    @property
    def piece_count(self) -> int:
        return sum(piece_count(tensor.size) for tensor in self.encoded.values())

    @property
    def size(self) -> int:
        """Bytes of all files except an included base."""
        return sum(part.size for name, part in self.files.items() if not name.startswith(BASE))

    def check_task(self, task: str) -> None:
        names = ", ".join(self.tasks)
        if not isinstance(task, str):
            raise TallmasksError(
                f"task is a {type(task).__name__}; expected the name of a task ({names}). The order of arguments is"
                " apply_(module, task)."
            )
        if task not in self.task_files:
            raise TallmasksError(f"The bundle has no task {task!r}{nearest(task, self.tasks)}; its tasks are: {names}.")

    def to_bytes(self) -> bytes:
        """bundle.json with its digest. Raises TypeError, ValueError or RecursionError for values that are not JSON."""
        value = self.model_dump(exclude={"digest"}, exclude_defaults=True, warnings=False)
        value["digest"] = bundle_digest(value)
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()

    @checked(mode="after")
    def _check(self) -> Self:
        for name in _OF_MASKS:
            value, is_foreign = getattr(self, name), bool(self.updates)
            expect(bool(value) != is_foreign, name, value, "no value" if is_foreign else "a value")
        expect(self.updates or self.coding == "multiples", "coding", self.coding, "multiples, in a bundle with masks")
        self._check_tensors()
        needed = self._check_task_files() | self._check_models()
        companions = {COMPANIONS + sha256 for one in self.models.values() for sha256 in one.companions.values()}
        needed |= {COMPANIONS + each.header for one in self.models.values() for each in one.originals.values()}
        for name in self.files:
            is_listed = name in needed or name in companions or (name.startswith(BASE) and is_safe(name))
            expect(is_listed, "a key of files", name, f"{MERGED}, a task's file or a file in {BASE}")
        lacking = sorted(needed - self.files.keys())
        expect(not lacking, "files", sorted(self.files), f"also {name_some(lacking)}")
        included, has_files = self.base.included, any(name.startswith(BASE) for name in self.files)
        expect(has_files == bool(included), "base.included", included, f"true if {BASE} has files")
        return self

    def _check_tensors(self) -> None:
        for name, tensor in self.tensors.items():
            is_allowed = tensor.dtype in FLOATS or tensor.stored == BUFFER
            expect(is_allowed, f"tensors[{name!a}].dtype", tensor.dtype, "a float dtype, or a buffer")
            expect(
                tensor.size <= _MOST_VALUES,
                f"tensors[{name!a}].shape",
                tensor.shape,
                f"at most {_MOST_VALUES:,} values",
            )
        for name in (*self.tensors, *self.aliases):
            _expect_name(name, "a tensor's name")
        for alias, name in self.aliases.items():
            expect(name in self.tensors, f"aliases[{alias!a}]", name, "the name of a tensor")
            expect(alias not in self.tensors, "an alias", alias, "a name that no tensor has")

    def _check_task_files(self) -> set[str]:
        """Validates the values by task and returns the names of merged.safetensors and the tasks' files."""
        tasks, folder = set(self.tasks), UPDATES if self.updates else MASKS
        expect(len(tasks) == len(self.tasks), "tasks", self.tasks, "a list without duplicates")
        for task in self.tasks:
            expect(is_name(task), "a task's name", task, NAME)
        expect(self.task_files.keys() == tasks, f"the keys of {folder[:-1]}", [*self.task_files], "the tasks")
        expect(self.noise.keys() <= tasks, "the keys of noise", [*self.noise], "tasks")
        for key, values in () if self.updates else (("mask_lambda", self.mask_lambda), ("density", self.density)):
            expect(values.keys() == tasks, f"the keys of {key}", [*values], "the tasks")
        for task, file in self.task_files.items():
            expect(_is_file_in(folder, file), f"{folder[:-1]}[{task!a}]", file, f"{folder}<name>.safetensors")
        files = {*self.task_files.values()}
        expect(len(files) == len(tasks), folder[:-1], self.task_files, "a different file for every task")
        return files | ({MERGED} if self.masks else set())

    def _check_models(self) -> set[str]:
        """Validates ``models`` and returns the names of their own files."""
        expect(self.models.keys() <= {*self.tasks}, "the keys of models", [*self.models], "names of tasks")
        files, of_base = list[str](), {*self.tensors, *self.aliases}
        for task, one in self.models.items():
            key, file = f"models[{task!a}]", one.own_file
            expect(bool(one.own) == (file is not None), f"{key}.own_file", file, "a file if `own` has tensors")
            if file is not None:
                expect(_is_file_in(OWN, file), f"{key}.own_file", file, f"{OWN}<name>.safetensors")
                files.append(file)
            for name in one.names:
                expect(
                    name in of_base or name in one.own, f"a key of {key}.names", name, "a name of the model's tensors"
                )
            for name in (*one.own, *one.names.values()):
                _expect_name(name, f"a tensor's name in {key}")
            missing = {*one.missing}
            present = {name: file for name, file in one.names.items() if self.aliases.get(name, name) not in missing}

            def is_kept(name: str, one: TaskModel = one, missing: set[str] = missing) -> bool:
                """Whether the model has a tensor of this name, which it does not rename."""
                has_name = name in one.own or (name in of_base and self.aliases.get(name, name) not in missing)
                return has_name and name not in one.names

            twice = [file for file, count in Counter(present.values()).items() if count > 1 or is_kept(file)]
            expect(not twice, f"a value of {key}.names", twice[:1], "a name that no other tensor of the model has")
            for name in one.companions:
                is_allowed = is_companion(name) or (one.originals and is_safe(name) and name.endswith(INDEX))
                expect(is_allowed, f"a key of {key}.companions", name, "a configuration or tokenizer file")
            for name in one.originals:
                expect(is_safe(name) and name.endswith(SAFETENSORS), f"a key of {key}.originals", name, "a weight file")
        expect(len(files) == len(set(files)), "own_file", files, "a different file for every task")
        return set(files)


def expect(correct: object, key: str, value: object, expected: str) -> None:
    if not correct:
        raise ValueError(f"{key} is {short(value)}; expected {expected}")


def _expect_name(name: str, key: str) -> None:
    expect(is_name(name) and name != METADATA, key, name, f"{NAME}, other than {METADATA}")


def bundle_digest(value: Mapping[str, Any]) -> str:
    """The digest of a parsed bundle.json, ignoring its ``digest`` key. Raises ValueError if it is no valid JSON."""
    rest = {key: inner for key, inner in value.items() if key != "digest"}
    return hashlib.sha256(canonical(rest).encode()).hexdigest()


def read_manifest(content: bytes, title: str) -> Manifest:
    """Parses and validates the bytes of a bundle.json. Raises TallmasksError, with ``title``, the key, the value found
    and the value expected."""
    if len(content) > LARGEST_JSON:
        raise TallmasksError(f"{title} is too large: a bundle.json has at most {LARGEST_JSON:,} bytes.")
    try:
        value = json.loads(content.decode())
        digest = bundle_digest(value)
    except (ValueError, RecursionError, AttributeError) as error:
        raise TallmasksError(
            f"{title} is not a complete JSON object ({' '.join(str(error).split())[:150]}). Copy or download the"
            " bundle again."
        ) from None
    if value.get("format") != FORMAT:
        raise TallmasksError(
            f"{title}: format is {short(value.get('format'))}; expected {FORMAT}. If it is a bundle, another version of"
            " tallmasks wrote it: update tallmasks, or write the bundle again."
        )
    if value.get("digest") != digest:
        raise TallmasksError(
            f"{title}: the recorded digest is {short(value.get('digest'))}, but the content has digest {digest}: the"
            " file was damaged or edited. Copy or download the bundle again."
        )
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        raise TallmasksError(
            f"{title}: {_problem(error)}. tallmasks did not write this bundle, or it was edited. Copy or download it"
            " again."
        ) from None


def _problem(error: ValidationError) -> str:
    """Message for the first problem: key, value found, value expected."""
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
    """A file name per task, such as ``masks/<task>.safetensors``: percent-encoded, and unique regardless of case.
    Raises TallmasksError if a task's name is no `is_name`."""
    taken: set[str] = set()
    files = {}
    for task in tasks:
        if not is_name(task):
            raise TallmasksError(f"The task name is {task[:100]!a}; expected {NAME}. Choose another name.")
        stem = quote(task, safe="").replace("~", "%7E")
        stem = f"%2E{stem[1:]}" if stem.startswith(".") else stem
        if not stem or len(stem) > _LONGEST_NAME or stem.lower() in taken:
            # encoded names contain no "~", so this cannot collide
            stem = f"{stem[:_LONGEST_NAME]}~{hashlib.sha256(task.encode()).hexdigest()[:16]}"
        taken.add(stem.lower())
        files[task] = f"{folder}{stem}.safetensors"
    return files


def _is_file_in(folder: str, file: str) -> bool:
    return file.startswith(folder) and file.count("/") == 1 and file.endswith(".safetensors") and is_safe(file)
