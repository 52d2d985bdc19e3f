"""The files of a bundle, each fetched when it is asked for and checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.entropy_coding import (
    STREAM,
    ByMagnitude,
    Order,
    Planes,
    Specs,
    Views,
    blocks,
    decode,
    largest_and_last,
    ones,
)
from tallmasks.bundles.manifest import BASE, MANIFEST, MERGED, BundledTensor, Manifest, read_manifest
from tallmasks.bundles.update_kernels import PackedTau, update_piece
from tallmasks.store import hub
from tallmasks.store.dtypes import DTYPES, FLOATS, OF_BUNDLES
from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import LARGEST_JSON, open_plain, within
from tallmasks.store.tensor_files import TensorFile, TensorSpec, name_some, open_tensors
from tallmasks.vectors.checkpoints.checkpoint import sha256_of
from tallmasks.vectors.checkpoints.hub_models import repository_of

SCALE = ".scale"
"""What an int8 tensor's scales are called, behind its name."""


def file_specs(manifest: Manifest) -> dict[str, Specs]:
    """The tensors of every file but the base's: what is written, and what is expected where one is read.

    Raises TallmasksError where a tensor is called like a part of another one.
    """
    files = {} if manifest.dtype is None else {MERGED: _merged_specs(manifest.dtype, manifest.stored)}
    return files | dict.fromkeys(manifest.task_files.values(), _task_specs(manifest))


def _merged_specs(dtype: str, stored: Mapping[str, BundledTensor]) -> Specs:
    code = OF_BUNDLES[dtype]
    specs = {name: TensorSpec(DTYPES[code].numpy, tensor.shape, code == "BF16") for name, tensor in stored.items()}
    if code == "I8":
        for name, tensor in stored.items():
            if name + SCALE in stored:
                raise TallmasksError(
                    f"tensor {name + SCALE} is called as int8 calls the scales of {name}; choose another dtype."
                )
            specs[name + SCALE] = TensorSpec(np.dtype("<f4"), (tensor.rows,))
    return specs


def _task_specs(manifest: Manifest) -> Specs:
    if not manifest.codings:
        stored = manifest.stored.items()
        return {name: TensorSpec(np.dtype(np.uint8), (-(-tensor.size // 8),)) for name, tensor in stored}
    specs: dict[str, TensorSpec] = {}
    for name, coding in manifest.codings.items():
        for ending, spec in coding.specs.items():
            if name + ending in specs or (ending and name + ending in manifest.codings):
                raise TallmasksError(
                    f"tensor {name + ending} is called as what is stored of {name}; rename one of them."
                )
            specs[name + ending] = spec
    return specs


def said_of(manifest: Manifest, task: str | None = None) -> dict[str, str]:
    """What the file of tau_MTL, or of a task, says of itself."""
    part = "update" if manifest.codings else "masks"
    return {"format": manifest.format} | ({"part": "merged"} if task is None else {"part": part, "task": task})


Described = tuple[str, tuple[int, ...]]
_MOST_DECODED = 8
"""How many times the base's bytes a coded file may stand for; float32 beside bfloat16, or two factors, need four."""


@dataclass(frozen=True)
class BundlePlace:
    """Where a bundle is: a folder, or a hub repository at a commit, of which files are downloaded one by one."""

    root: Path
    repository: str | None = None
    revision: str = "main"

    @property
    def title(self) -> str:
        """How people name it."""
        return str(self.root) if self.repository is None else f"{self.repository}@{self.revision}"

    def file(self, name: str) -> Path:
        """A file of it, links followed.

        Raises TallmasksError where it is missing, cannot be had, or a link leads out of the bundle.
        """
        try:
            if self.repository is not None:
                hub.download(self.repository, name, self.revision)
            found = within(self.root, name)
            found.stat()
        except (OSError, ValueError, RuntimeError) as error:
            problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise TallmasksError(f"{self.title}: {name} {problem}; the bundle names it. Get it again.") from None
        return found


def open_place(spec: str | Path) -> BundlePlace:
    """The place of a bundle: a folder, or else `organisation/name[@revision]` on the hub, pinned to a commit.

    Raises TallmasksError where there is neither.
    """
    path = Path(spec)
    try:
        if path.is_dir():
            return BundlePlace(path)
    except (OSError, ValueError):
        pass
    repository = repository_of(str(spec))
    if repository is None:
        raise TallmasksError(f"{str(spec)!r} is no folder and no repository of the hub; expected a bundle's folder.")
    name, revision = repository
    found = hub.download(name, MANIFEST, revision)
    return BundlePlace(found.parent, name, hub.commit_of(found) or revision)


def manifest_of(place: BundlePlace) -> Manifest:
    """The checked bundle.json of a bundle. Raises TallmasksError where there is none, or a damaged one."""
    path = place.file(MANIFEST)
    try:
        with open_plain(path) as file:
            content = file.read(LARGEST_JSON + 1)
    except OSError as error:
        raise TallmasksError(f"{path} cannot be read: {error.strerror}. Get the bundle again.") from None
    return read_manifest(content, str(place.root / MANIFEST))


@dataclass(frozen=True)
class BundleParts:
    """The tensors of an open bundle, memory-mapped as they are stored."""

    place: BundlePlace
    manifest: Manifest
    _checked: dict[str, Path] = field(default_factory=dict)
    _of_tasks: dict[str, Views] = field(default_factory=dict)
    _taus: dict[str, PackedTau] = field(default_factory=dict)
    _bits: dict[tuple[str, str], NDArray[np.uint8]] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def tau(self, name: str) -> PackedTau:
        """One stored tensor of tau_MTL. Raises TallmasksError where its file is not the bundle's."""
        if name not in self._taus:
            self._taus[name] = tau_of(self.manifest, self.merged, name)
        return self._taus[name]

    def bits(self, task: str, name: str) -> NDArray[np.uint8]:
        """The mask of one stored tensor, uint8 [ceil(n / 8)]. Raises as :meth:`tau`."""
        if (task, name) not in self._bits:
            self._bits[task, name] = self.of_task(task).view(name)
        return self._bits[task, name]

    def update(self, task: str, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of a stored tensor's update, flattened, float32. Raises as :meth:`tau`."""
        if name not in self.manifest.codings:
            return update_piece(self.tau(name), self.bits(task, name), self.manifest.scale[task], start, stop)
        return self.manifest.codings[name].piece(self._own(self.of_task(task), name), start, stop)

    def check(self, task: str) -> None:
        """Open, and check, all files of a task's update. Raises as :meth:`tau`."""
        assert self.of_task(task) and (self.manifest.codings or self.merged)

    @property
    def merged(self) -> Views:
        """The file of tau_MTL."""
        with self._lock:
            return self._merged

    @cached_property
    def _merged(self) -> Views:
        return self._opened(MERGED)

    def of_task(self, task: str) -> Views:
        """The file of one task: its masks, or its own tensors."""
        self.manifest.check_task(task)
        with self._lock:
            if task not in self._of_tasks:
                name = self.manifest.task_files[task]
                opened = self._opened(name)
                self._check_values(opened, f"{self.place.title}: {name}")
                self._of_tasks[task] = opened
            return self._of_tasks[task]

    def held(self, task: str) -> int:
        """How many weights a task's mask holds, in memory that does not grow with it.  Raises as :meth:`tau`."""
        if not self.manifest.uncoded:
            masks = self.of_task(task)
            return sum(int(np.bitwise_count(masks.view(name)).sum(dtype=np.int64)) for name in self.manifest.stored)
        name = self.manifest.task_files[task]
        order = order_of(self.manifest, name, lambda: self.merged)
        assert isinstance(order, ByMagnitude)
        return ones(self._open(name).view(STREAM), self.specs[name], order, f"{self.place.title}: {name}")

    def verify(self, task: str | None) -> None:
        """Check all of a task's file, or of that of tau_MTL, in memory that does not grow with what it decodes to.

        Raises as :meth:`tau`.
        """
        manifest = self.manifest
        name = MERGED if task is None else manifest.task_files[task]
        title, opened, specs = f"{self.place.title}: {name}", self._open(name), self.specs[name]
        if not manifest.uncoded:
            if task is not None:
                self._check_values(opened, title)
        elif manifest.codings:
            self._check_values(largest_and_last(opened.view(STREAM), specs, title), title)
        else:
            for _ in blocks(opened.view(STREAM), specs, order_of(manifest, name, lambda: self.merged), title):
                pass

    def included_base(self) -> Path:
        """The folder of the included base, all of its files there and checked. Raises TallmasksError."""
        for name in self.manifest.files:
            if name.startswith(BASE):
                self.checked(name)
        return self.place.root / BASE

    def checked(self, name: str) -> Path:
        """A file whose size and sha256 are those that bundle.json says; looked at once.

        Raises TallmasksError, naming it, where it is missing or another.
        """
        with self._lock:
            if name not in self._checked:
                path, expected = self.place.file(name), self.manifest.files[name]
                try:
                    size = path.stat().st_size
                    digest = sha256_of(path) if size == expected.size else None
                except OSError as error:
                    raise TallmasksError(f"{self.place.title}: {name} cannot be read: {error.strerror}.") from None
                if size != expected.size:
                    raise TallmasksError(
                        f"{self.place.title}: {name} has {size} bytes; bundle.json says {expected.size}. It was cut or"
                        " is another file: get it again."
                    )
                if digest != expected.sha256:
                    raise TallmasksError(
                        f"{self.place.title}: {name} has sha256 {digest}; bundle.json says {expected.sha256}. It was"
                        " damaged or is another file: get it again."
                    )
                self._checked[name] = path
            return self._checked[name]

    @cached_property
    def specs(self) -> dict[str, Specs]:
        """The tensors of every file."""
        return file_specs(self.manifest)

    def _opened(self, name: str) -> Views:
        opened, specs = self._open(name), self.specs[name]
        if not self.manifest.uncoded:
            return opened
        order = order_of(self.manifest, name, lambda: self.merged)
        return decode(opened.view(STREAM), specs, order, f"{self.place.title}: {name}")

    def _open(self, name: str) -> TensorFile:
        """A file that holds its tensors, or a stream of them that is not decoded yet."""
        specs = self.specs[name]
        expected: dict[str, Described] = {key: (spec.code, spec.shape) for key, spec in specs.items()}
        opened = open_tensors(self.checked(name))
        if self.manifest.uncoded:
            (length,) = opened.shape(STREAM) if opened.names == (STREAM,) and len(opened.shape(STREAM)) == 1 else (0,)
            expected = {STREAM: ("U8", (length,))}
            claimed = sum(spec.nbytes for spec in specs.values())
            base = sum(tensor.size * FLOATS[tensor.dtype] for tensor in self.manifest.tensors.values())
            if claimed > _MOST_DECODED * base:
                raise TallmasksError(
                    f"{self.place.title}: {name} stands for {claimed} bytes of tensors, and the base has {base};"
                    f" expected at most {_MOST_DECODED} times as many. It was not made by this package: get the bundle"
                    " again."
                )
        found: dict[str, Described] = {n: (opened.dtype(n), opened.shape(n)) for n in opened.names}
        wrong = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
        if wrong:
            key = wrong[0]
            raise TallmasksError(
                f"{self.place.title}: {name} does not hold the tensors of bundle.json: {key!a} is"
                f" {_say(found.get(key))}, expected {_say(expected.get(key))} ({name_some(map(ascii, wrong), 3)}). It"
                " was not made by this package: get the bundle again."
            )
        return opened

    def _own(self, opened: Views, name: str) -> dict[str, NDArray]:
        return {ending: opened.view(name + ending) for ending in self.manifest.codings[name].specs}

    def _check_values(self, opened: Views, title: str) -> None:
        for name, tensor in self.manifest.stored.items():
            if coding := self.manifest.codings.get(name):
                problem = coding.problem(self._own(opened, name))
            else:
                beyond = tensor.size % 8 and int(opened.view(name)[-1]) >> tensor.size % 8
                problem = "bits behind its last value" if beyond else None
            if problem:
                raise TallmasksError(
                    f"{title}: tensor {name!a} has {problem}; expected none. It was not made by this package: get the"
                    " bundle again."
                )


def tau_of(manifest: Manifest, merged: Views, name: str) -> PackedTau:
    """One stored tensor of tau_MTL, out of its file."""
    tensor, code = manifest.stored[name], OF_BUNDLES[str(manifest.dtype)]
    raw = merged.view(name).reshape(-1).view(np.uint8)
    if code != "I8":
        return PackedTau(raw, code)
    scales = np.ascontiguousarray(merged.view(name + SCALE), np.float32)
    return PackedTau(raw, code, scales, max(tensor.size // max(tensor.rows, 1), 1))


def order_of(manifest: Manifest, file: str, merged: Callable[[], Views]) -> Order:
    """How a file is ordered before it is entropy-coded: masks by ``merged``, the file of tau_MTL."""
    if manifest.codings or file == MERGED:
        return Planes()

    def tau(name: str, start: int, stop: int) -> NDArray[np.float32]:
        every = np.full(-(-stop // 8), 255, np.uint8)
        return update_piece(tau_of(manifest, merged(), name), every, 1.0, start, stop)

    return ByMagnitude(tau, {name: tensor.size for name, tensor in manifest.stored.items()})


def _say(described: Described | None) -> str:
    return "nothing" if described is None else f"{described[0]} {list(described[1])}"
