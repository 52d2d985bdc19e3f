"""The files of a bundle, each fetched when it is asked for and checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.manifest import BASE, MANIFEST, MERGED, BundledTensor, Manifest, read_manifest
from tallmasks.bundles.packed_tau import PackedTau
from tallmasks.store import hub
from tallmasks.store.dtypes import DTYPES, OF_BUNDLES
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import once
from tallmasks.store.plain_files import LARGEST_JSON, open_plain, within
from tallmasks.store.tensor_files import TensorSpec, name_some, open_tensors
from tallmasks.vectors.checkpoints.checkpoint import sha256_of
from tallmasks.vectors.checkpoints.hub_models import repository_of

Arrays = Mapping[str, NDArray]
"""The tensors of a file by name, in their shapes."""
Specs = Mapping[str, TensorSpec]
SCALE = ".scale"
"""What an int8 tensor's scales are called, behind its name."""


def file_specs(manifest: Manifest) -> dict[str, Specs]:
    """The tensors of every file but the base's.  Raises TallmasksError where two would have one name."""
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
    specs = {
        name: TensorSpec(DTYPES[tensor.dtype].numpy, tensor.shape, tensor.dtype == "BF16")
        for name, tensor in manifest.buffers.items()
    }
    if not manifest.codings:
        stored = manifest.stored.items()
        return specs | {name: TensorSpec(np.dtype(np.uint8), (-(-tensor.size // 8),)) for name, tensor in stored}
    for name, coding in manifest.codings.items():
        for ending, spec in coding.specs.items():
            if name + ending in specs or (ending and name + ending in manifest.codings):
                raise TallmasksError(
                    f"tensor {name + ending} is called as what is stored of {name}; rename one of them."
                )
            specs[name + ending] = spec
    return specs


def metadata_of(manifest: Manifest, task: str | None = None) -> dict[str, str]:
    """The metadata of the file of tau_MTL, or of a task."""
    part = "update" if manifest.codings else "masks"
    return {"format": manifest.format} | ({"part": "merged"} if task is None else {"part": part, "task": task})


Described = tuple[str, tuple[int, ...]]
_MOST_DECODED = 8
"""How many times the base's bytes a coded file may stand for; float32 beside bfloat16, or two factors, need four."""


@dataclass(frozen=True)
class BundlePlace:
    """Where a bundle is: a folder, or a hub repository at a commit, whose files are downloaded one by one."""

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
            path = within(self.root, name)
            path.stat()
        except (OSError, ValueError, RuntimeError) as error:
            problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise TallmasksError(f"{self.title}: {name} {problem}; the bundle names it. Get it again.") from None
        return path


def open_place(spec: str | Path) -> BundlePlace:
    """The place of a bundle: a folder, or else `organisation/name[@revision]` on the hub, pinned to a commit.

    Raises TallmasksError where there is neither.
    """
    path = Path(spec)
    try:
        if path.is_dir():
            return BundlePlace(path.absolute())  # files are opened later, or by another process
    except (OSError, ValueError):
        pass
    repository = repository_of(str(spec))
    if repository is None:
        raise TallmasksError(f"{str(spec)!r} is no folder and no repository of the hub; expected a bundle's folder.")
    name, revision = repository
    manifest = hub.download(name, MANIFEST, revision)
    return BundlePlace(manifest.parent, name, hub.commit_of(manifest) or revision)


def manifest_of(place: BundlePlace) -> Manifest:
    """The checked bundle.json of a bundle. Raises TallmasksError where there is none, or a damaged one."""
    path = place.file(MANIFEST)
    try:
        with open_plain(path) as file:
            content = file.read(LARGEST_JSON + 1)
    except OSError as error:
        raise TallmasksError(f"{path} cannot be read: {error.strerror}. Get the bundle again.") from None
    return read_manifest(content, str(place.root / MANIFEST))


class BundleParts:
    """The tensors of an open bundle, memory-mapped as they are stored.

    Each file is opened and checked once, when it is first needed.  Methods may be called by any thread.  They raise
    TallmasksError where a file is missing, or is not the bundle's.

    Attributes:
        tau: ``(name) -> PackedTau``, one stored tensor of tau_MTL.
        of_task: ``(task) -> tensors`` of one task by name: its masks uint8 [ceil(n / 8)], or its own tensors; buffers.
        checked: ``(file) -> path`` of a file whose size and sha256 are those in bundle.json.
    """

    def __init__(self, place: BundlePlace, manifest: Manifest) -> None:
        self.place, self.manifest = place, manifest
        self.checked = once(self._checked)
        self._opened = once(self._open)
        self.of_task = once(self._open_task)
        self.tau = once(lambda name: tau_of(manifest, self.merged, name))

    @property
    def merged(self) -> Arrays:
        """The file of tau_MTL."""
        return self._opened(MERGED)

    @cached_property
    def specs(self) -> dict[str, Specs]:
        """The tensors of every file."""
        return file_specs(self.manifest)

    def update(self, task: str, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of a stored tensor's update, flattened, float32."""
        first = start // 8 * 8
        nothing = np.full(stop - first, -0.0, np.float32)  # what changes no number that is added to it
        out = np.empty_like(nothing)
        self.add(nothing, task, name, first, out)
        return out[start - first :]

    def add(self, theta: NDArray, task: str, name: str, start: int, out: NDArray[np.float32]) -> None:
        """``out`` = theta + a stored tensor's update from value ``start`` on, float32 [n] each; 8 divides ``start``."""
        if coding := self.manifest.codings.get(name):
            np.add(theta, coding.piece(self._own(self.of_task(task), name), start, start + out.size), out=out)
        else:
            self.tau(name).add(theta, start, self.of_task(task)[name], self.manifest.scale[task], out)

    def buffer(self, task: str, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values start..stop of a buffer, flattened, as the task has them."""
        width = DTYPES[self.manifest.buffers[name].dtype].width
        return self.of_task(task)[name].reshape(-1).view(np.uint8)[start * width : stop * width]

    def check(self, task: str) -> None:
        """Open, and check, all files of a task's update."""
        assert self.of_task(task) and (self.manifest.codings or self.merged)

    def held(self, task: str) -> int:
        """How many weights a task's mask holds."""
        masks = self.of_task(task)
        return sum(int(np.bitwise_count(masks[name]).sum(dtype=np.int64)) for name in self.manifest.stored)

    def included_base(self) -> Path:
        """The folder of the included base, whose files are all checked."""
        for name in self.manifest.files:
            if name.startswith(BASE):
                self.checked(name)
        return self.place.root / BASE

    def _checked(self, name: str) -> Path:
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
        return path

    def _open_task(self, task: str) -> Arrays:
        self.manifest.check_task(task)
        return self._opened(self.manifest.task_files[task])

    def _open(self, name: str) -> Arrays:
        expected: dict[str, Described] = {key: (spec.code, spec.shape) for key, spec in self.specs[name].items()}
        opened = open_tensors(self.checked(name))
        present: dict[str, Described] = {n: (opened.dtype(n), opened.shape(n)) for n in opened.names}
        wrong = sorted(key for key in present.keys() | expected.keys() if present.get(key) != expected.get(key))
        if wrong:
            key = wrong[0]
            raise TallmasksError(
                f"{self.place.title}: {name} does not hold the tensors of bundle.json: {key!a} is"
                f" {_say(present.get(key))}, expected {_say(expected.get(key))} ({name_some(map(ascii, wrong), 3)}). It"
                " was not made by this package: get the bundle again."
            )
        return {key: opened.view(key) for key in opened.names}

    def _own(self, tensors: Arrays, name: str) -> dict[str, NDArray]:
        return {ending: tensors[name + ending] for ending in self.manifest.codings[name].specs}


def tau_of(manifest: Manifest, merged: Arrays, name: str) -> PackedTau:
    """One stored tensor of tau_MTL, out of its file."""
    tensor, code = manifest.stored[name], OF_BUNDLES[str(manifest.dtype)]
    raw = merged[name].reshape(-1).view(np.uint8)
    if code != "I8":
        return PackedTau(raw, code)
    scales = np.ascontiguousarray(merged[name + SCALE], np.float32)
    return PackedTau(raw, code, scales, max(tensor.size // max(tensor.rows, 1), 1))


def _say(described: Described | None) -> str:
    return "nothing" if described is None else f"{described[0]} {list(described[1])}"
