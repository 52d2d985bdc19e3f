"""Writing a bundle: piece by piece from any thread, whole or not at all."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import order_of
from tallmasks.bundles.codings import Coding
from tallmasks.bundles.encoding import Encoder, new_merged, scratch_bytes
from tallmasks.bundles.entropy_coding import Decoded, Views, encode
from tallmasks.bundles.manifest import (
    CODER,
    BaseOrigin,
    BundledTensor,
    Manifest,
    PartFile,
    read_manifest,
)
from tallmasks.bundles.model_card import model_card
from tallmasks.bundles.part_forms import file_specs, said_of, task_specs
from tallmasks.bundles.part_names import BASE, CARD, MANIFEST, MASKS, MERGED, UPDATES, is_safe, task_files
from tallmasks.store.atomic_files import atomic_write_bytes, whole
from tallmasks.store.dtypes import FLOATS, OF_BUNDLES
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.parallel import parallel
from tallmasks.store.tensor_files import NewTensors, bytes_of_file, name_some, new_tensors, open_tensors
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of

Opened = TypeVar("Opened")

_HEADERS = 1 << 14
"""Room for a file's header beside 200 bytes for each tensor."""


@dataclass(frozen=True)
class BundleFacts:
    """What a bundle is made of.

    Attributes:
        method, options: how the merged vector and the masks were made; options are anything that JSON can say.
        base: theta_0; ``include_base`` copies its files into the bundle.
        tasks: their names, in order.
        dtype: of the stored merged vector: float32, bfloat16, float16 or int8.
        unchanged: names of tensors of floats that no model changed; they are not stored.
        mask_lambda: by task; none for tasks left out.
        scale: by task, what the update is multiplied by; 1 for tasks left out.
        codings: of every tensor that is stored, where a bundle holds each task's own tensors; dtype, mask_lambda and
            scale then say nothing.
        entropy_coding: whether the files are coded to fewer bytes, which are decoded as they are opened.
    """

    method: str
    base: Checkpoint
    tasks: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    unchanged: Collection[str] = ()
    mask_lambda: Mapping[str, float | None] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    include_base: bool = False
    codings: Mapping[str, Coding] = field(default_factory=dict)
    entropy_coding: bool = False


@dataclass(frozen=True)
class NewBundle:
    """A bundle in the making. ``mask_lambda`` and ``scale``, by task, may be set until the ``with`` block ends."""

    manifest: Manifest
    mask_lambda: dict[str, float | None]
    scale: dict[str, float]
    _encoder: Encoder
    _masks: Mapping[str, NewTensors]
    _written: Counter[str] = field(default_factory=Counter)
    _held: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def write(self, name: str, start: int, merged: NDArray[np.float32], masks: Mapping[str, NDArray[np.uint8]]) -> None:
        """Values ``start``.. of one flattened tensor and each task's mask of them; any thread, each value once.

        merged: float32 [n], tau_MTL; masks: by task uint8 [ceil(n / 8)], the bit of value start + 8 j + i is bit i
        of byte j; bits behind the tensor's last value are taken as 0.  Every piece begins at a multiple of 8, and
        ends at one or at the tensor's end.

        Raises:
            TallmasksError: NaN, infinity, or a value too large for the bundle's dtype (names the tensor).
            ValueError: the tensor is not stored, or the piece is cut elsewhere, or lacks a task.
        """
        tensor = self.manifest.stored.get(name)
        stop = start + merged.size
        if tensor is None or start < 0 or stop > tensor.size or start % 8 or (stop % 8 and stop != tensor.size):
            raise ValueError(f"values {start}..{stop} of {name}: not a piece of a stored tensor, cut at multiples of 8")
        if masks.keys() != self._masks.keys() or any(bits.size != -(-merged.size // 8) for bits in masks.values()):
            raise ValueError(f"{name}: the masks are not {-(-merged.size // 8)} bytes for each task")
        self._encoder.write(name, start, np.ascontiguousarray(merged, np.float32))
        held = {}
        for task, bits in masks.items():
            packed = self._masks[task].tensors[name][start // 8 : -(-stop // 8)]
            packed[...] = bits
            if merged.size % 8:
                packed[-1] &= (1 << merged.size % 8) - 1
            held[task] = int(np.bitwise_count(packed).sum(dtype=np.int64))
        with self._lock:
            self._written[name] += merged.size
            self._held.update(held)

    def check_whole(self) -> None:
        """Raises ValueError where values were never written, or written twice."""
        for name, tensor in self.manifest.stored.items():
            if self._written[name] != tensor.size:
                raise ValueError(f"{name}: {self._written[name]} values were written, of {tensor.size}")

    @property
    def densities(self) -> dict[str, float]:
        """By task, the fraction of the stored values that its mask holds."""
        size = max(sum(tensor.size for tensor in self.manifest.stored.values()), 1)
        return {task: self._held[task] / size for task in self.manifest.tasks}


@dataclass(frozen=True)
class NewOwnBundle:
    """A bundle of each task's own tensors in the making."""

    manifest: Manifest
    _files: Mapping[str, NewTensors]
    _written: set[tuple[str, str]] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def write(self, task: str, name: str, content: Any) -> None:
        """One tensor of one task: what its coding takes; any thread, each once.

        Raises:
            TallmasksError: NaN or infinity (names task and tensor).
            ValueError: the tensor is not stored, was written before, or the content is of another shape.
        """
        coding = self.manifest.codings[name]
        for ending, values in coding.pack(content).items():
            target = self._files[task].tensors[name + ending]
            if values.shape != target.shape:
                raise ValueError(f"{task}: {name}{ending} has the shape {values.shape}; expected {target.shape}")
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise TallmasksError(
                    f"{task}: tensor {name} holds NaN or infinity, or a value too large to compress in float32;"
                    " expected finite numbers. The checkpoint is damaged or its training diverged: leave it out."
                )
            target[...] = values
        with self._lock:
            if (task, name) in self._written:
                raise ValueError(f"{task}: {name} was written twice")
            self._written.add((task, name))

    def check_whole(self) -> None:
        """Raises ValueError where a tensor was never written."""
        for task in self.manifest.tasks:
            if missing := [name for name in self.manifest.codings if (task, name) not in self._written]:
                raise ValueError(f"{task}: {name_some(missing)} were never written")


@contextmanager
def new_own_bundle(out: Path | str, facts: BundleFacts) -> Iterator[NewOwnBundle]:
    """As :func:`new_bundle`, of facts with codings."""
    draft = _draft(facts)
    with whole(out, _needed(facts, draft), folder=True, new=True) as folder:
        with _Files() as files:
            new = NewOwnBundle(draft, _task_files(files, folder, draft))
            yield new
            new.check_whole()
        _describe(folder, facts, draft, {})


@contextmanager
def new_bundle(out: Path | str, facts: BundleFacts) -> Iterator[NewBundle]:
    """Create a bundle of masks in the folder ``out``, which appears complete at the end of the ``with`` block or never.

    What a killed process left of an earlier attempt at the same place is removed first.

    Raises TallmasksError where something is at ``out``, the facts contradict each other or the base, the disk has no
    room (before anything is written), or a written value cannot be stored.
    """
    draft = _draft(facts)
    with whole(out, _needed(facts, draft), folder=True, new=True) as folder:
        with _Files() as files:
            encoder = files.open(new_merged(folder, facts.dtype, draft.stored, said_of(draft)))
            opened = _task_files(files, folder, draft)
            new = NewBundle(draft, dict(draft.mask_lambda), dict(draft.scale), encoder, opened)
            yield new
            new.check_whole()
        _describe(folder, facts, replace(draft, mask_lambda=new.mask_lambda, scale=new.scale), new.densities)


def bytes_of_bundle(facts: BundleFacts) -> dict[str, int]:
    """The exact size of every file but the card that a bundle of these facts has, by name; writes nothing.  Before
    entropy coding.

    Raises TallmasksError as :func:`new_bundle`.
    """
    draft = _draft(facts)
    sizes = {name: path.stat().st_size for name, path in _included(facts).items()}
    specs, task_of = file_specs(draft), {file: task for task, file in draft.task_files.items()}
    sizes |= {file: bytes_of_file(specs[file], said_of(draft, task_of.get(file))) for file in specs}
    digest = "0" * 64  # as long as any
    base = {} if facts.include_base else dict.fromkeys(facts.base.files, digest)
    files = {name: PartFile(digest, size) for name, size in sizes.items()}
    described = replace(draft, base=draft.base._replace(sha256=base), files=files)
    return {**sizes, MANIFEST: len(described.to_bytes())}


class _Files:
    """Files in the making, which are sealed and brought to the disk side by side."""

    def __init__(self) -> None:
        self._each: list[ExitStack] = []

    def open(self, file: AbstractContextManager[Opened]) -> Opened:
        self._each.append(ExitStack())
        return self._each[-1].enter_context(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        with ExitStack() as left:  # after an error; what is closed has nothing left to do
            for file in self._each:
                left.push(file)
            if error[1] is not None:
                raise error[1]
            parallel(ExitStack.close, self._each)


def _task_files(files: _Files, folder: Path, draft: Manifest) -> dict[str, NewTensors]:
    """The file of every task, opened for writing."""
    specs = task_specs(draft)
    return {
        task: files.open(new_tensors(folder / file, specs, said_of(draft, task)))
        for task, file in draft.task_files.items()
    }


def _draft(facts: BundleFacts) -> Manifest:
    """The manifest as far as it is known at the beginning."""
    if facts.dtype not in OF_BUNDLES:
        raise TallmasksError(
            f"dtype is {facts.dtype!r}{nearest(str(facts.dtype), OF_BUNDLES)}; expected one of {', '.join(OF_BUNDLES)}."
        )
    if not facts.tasks or len(set(facts.tasks)) != len(facts.tasks):
        raise TallmasksError(
            f"The tasks are {', '.join(facts.tasks) or 'none'}; expected different names, at least one."
        )
    unchanged = set(facts.unchanged)
    tensors = {
        name: BundledTensor(tuple(tensor.shape), tensor.dtype, name not in unchanged)
        for name, tensor in sorted(facts.base.tensors.items())
        if tensor.dtype in FLOATS
    }
    for what, names, known in (
        ("unchanged", facts.unchanged, tensors.keys()),
        ("mask_lambda", facts.mask_lambda, facts.tasks),
        ("scale", facts.scale, facts.tasks),
    ):
        if strange := set(names) - set(known):
            raise TallmasksError(f"{what} names {name_some(sorted(strange))}; expected some of {name_some(known)}.")
    stored = {name: tensor.shape for name, tensor in tensors.items() if tensor.stored}
    if facts.codings and stored != {name: coding.shape for name, coding in facts.codings.items()}:
        raise ValueError(
            f"the codings are of {name_some(facts.codings)}; expected {name_some(stored)}, in their shapes"
        )
    origin = {key: facts.base.origin.get(key) for key in ("repository", "revision", "path")}
    draft = Manifest(
        method=facts.method,
        options=dict(facts.options),
        base=BaseOrigin(**origin, included=facts.include_base, sha256={}),
        dtype=facts.dtype,
        tensors=tensors,
        aliases=dict(sorted(facts.base.aliases.items())),
        tasks=tuple(facts.tasks),
        task_files=task_files(facts.tasks, UPDATES if facts.codings else MASKS),
        mask_lambda={task: facts.mask_lambda.get(task) for task in facts.tasks},
        scale={task: float(facts.scale.get(task, 1.0)) for task in facts.tasks},
        files={},
        codings=dict(sorted(facts.codings.items())),
    )
    file_specs(draft)  # refuses names that would be another tensor's
    return draft


def _included(facts: BundleFacts) -> dict[str, Path]:
    """The base's files by their name in the bundle, where they are to be in it."""
    if not facts.include_base:
        return {}
    index = facts.base.index
    files = {**facts.base.companions, **({index.name: index} if index else {}), **facts.base.files}
    if unsafe := [name for name in files if not is_safe(name)]:
        raise TallmasksError(f"The base's file {unsafe[0]!r} cannot be included under this name; rename it.")
    return {BASE + name: path for name, path in files.items()}


def _needed(facts: BundleFacts, draft: Manifest) -> int:
    """Bytes that the disk must have for the bundle while it is written."""
    headers = (1 + len(draft.tasks)) * (_HEADERS + 200 * len(draft.tensors))
    needed = headers + (0 if draft.codings else scratch_bytes(facts.dtype, draft.stored))
    files = [sum(spec.nbytes for spec in specs.values()) for specs in file_specs(draft).values()]
    needed += sum(files) + (2 * max(files) if facts.entropy_coding else 0)  # coded, and once more as it is coded
    return needed + sum(path.stat().st_size for path in _included(facts).values())


def _code(folder: Path, draft: Manifest) -> dict[str, int]:
    """Entropy-code every file in its place; how many bytes each had."""
    merged: Views = Decoded({}) if draft.codings else open_tensors(folder / MERGED)
    task_of, sizes = {file: task for task, file in draft.task_files.items()}, {}
    described = replace(draft, uncoded=dict.fromkeys(file_specs(draft), 0))
    for file, specs in reversed(file_specs(draft).items()):  # tau_MTL last: masks are ordered by it
        path = folder / file
        plain = path.rename(path.with_name(f"{path.name}.plain"))
        order = order_of(draft, file, lambda: merged)
        encode(path, specs, open_tensors(plain), order, said_of(described, task_of.get(file)) | {"coder": CODER})
        sizes[file] = plain.stat().st_size
        plain.unlink()
    return dict(sorted(sizes.items()))


def _describe(folder: Path, facts: BundleFacts, draft: Manifest, densities: Mapping[str, float]) -> None:
    """Copy the base where it is to be in the bundle, and write bundle.json and README.md."""
    included = _included(facts)
    if facts.entropy_coding:
        draft = replace(draft, uncoded=_code(folder, draft))
    parts: dict[str, PartFile] = {}
    sha256: dict[str, str] = {}

    def take(name: str | None) -> None:
        if name is None:
            sha256.update(facts.base.sha256s())
            return
        path = folder / name
        if name in included:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(included[name], path)
        parts[name] = PartFile(sha256_of(path), path.stat().st_size)

    parallel(take, [*file_specs(draft), *(included or [None])])
    sha256 |= {name.removeprefix(BASE): parts[name].sha256 for name in included}
    manifest = replace(draft, base=draft.base._replace(sha256=sha256), files=dict(sorted(parts.items())))
    try:
        content = manifest.to_bytes()
    except (TypeError, ValueError, RecursionError) as error:
        raise TallmasksError(f"The bundle's options, lambdas or scales are no JSON: {error}.") from None
    read_manifest(content, MANIFEST)  # nothing is written that would be refused
    atomic_write_bytes(folder / MANIFEST, content)
    atomic_write_bytes(folder / CARD, model_card(manifest, densities).encode(), read_only=False)
