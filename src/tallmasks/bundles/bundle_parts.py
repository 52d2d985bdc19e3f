"""The files of a bundle: fetched on demand and checked before use."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tallmasks.bundles.manifest import BASE, MANIFEST, MERGED, Manifest, read_manifest
from tallmasks.bundles.streams import (
    STEPS,
    STREAMS,
    Integers,
    decoded,
    ends_of_pieces,
    few_of,
    stored_piece,
    stream_infos,
)
from tallmasks.bundles.updates import Update, update_of_multiples
from tallmasks.errors import TallmasksError, short
from tallmasks.io import hub
from tallmasks.io.dtypes import DTYPES, nbytes_of
from tallmasks.io.plain_files import LARGEST_JSON, open_plain, within
from tallmasks.io.tensor_files import TensorInfo, open_tensors
from tallmasks.parallel import cached, parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.hub_models import repository_of
from tallmasks.vectors.multiples import columns_of, piece, piece_count, row_rms, steps_of

LARGEST_STEP = 2.0**96
"""With larger steps, the product of a step and an integer, int32, could be infinite as float32."""
Arrays = Mapping[str, NDArray]
Infos = Mapping[str, TensorInfo]


def other_infos(manifest: Manifest) -> dict[str, Infos]:
    """The tensors of every safetensors file except the base's, without those of `streams`."""
    of_task = {name: TensorInfo(tensor.dtype, tensor.shape) for name, tensor in manifest.buffers.items()}
    files: dict[str, Infos] = {MERGED: {}} if manifest.masks else {}
    files |= dict.fromkeys(manifest.task_files.values(), of_task)
    for model in manifest.models.values():
        if model.own_file is not None:
            files[model.own_file] = {name: TensorInfo(tensor.dtype, tensor.shape) for name, tensor in model.own.items()}
    return files


def has_steps(manifest: Manifest, file: str) -> bool:
    """Whether the streams of a file are multiples, which have steps."""
    return manifest.coding == "multiples" and (not manifest.masks or file == MERGED)


def metadata_of(manifest: Manifest, task: str | None = None) -> dict[str, str]:
    """Metadata of merged.safetensors, or of a task's file."""
    part = "update" if manifest.updates else "masks"
    return {"format": manifest.format} | ({"part": "merged"} if task is None else {"part": part, "task": task})


@dataclass(frozen=True)
class BundleLocation:
    """A local folder, or a hub repository at a commit whose files are downloaded one by one."""

    root: Path
    repository: str | None = None
    revision: str = "main"

    @property
    def title(self) -> str:
        return str(self.root) if self.repository is None else f"{self.repository}@{self.revision}"

    def file(self, name: str) -> Path:
        """The path of a file in the bundle. Raises TallmasksError if it is missing, unreadable, not a regular file, or
        a link that leaves the bundle."""
        try:
            if self.repository is not None:
                hub.download(self.repository, name, self.revision)
            path = within(self.root, name)
            open_plain(path).close()
        except (OSError, ValueError, RuntimeError) as error:
            problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            not_bundle = "expected a folder written by `tallmasks compress`"
            advice = not_bundle if name == MANIFEST else "bundle.json lists it. Copy or download the bundle again."
            raise TallmasksError(f"{self.title}: {name} {problem}; {advice}") from None
        return path


def open_location(spec: str | Path) -> BundleLocation:
    """Locates a bundle: a local folder, or else `organisation/name[@revision]` on the hub, pinned to a commit. Raises
    TallmasksError if neither exists. A local file is accepted here and refused by `manifest_of`."""
    if os.path.lexists(spec):
        if Path(spec).is_file() and Path(spec).with_name(MANIFEST).is_file():
            raise TallmasksError(f"{spec}: found a file of a bundle; expected the bundle's folder, {Path(spec).parent}")
        return BundleLocation(Path(spec).absolute())  # files are opened later, or by another process
    repository = repository_of(str(spec))
    if repository is None:
        raise TallmasksError(
            f"{str(spec)!r} does not exist and is not a repository on the hub; expected the folder of a bundle."
        )
    name, revision = repository
    manifest = hub.download(name, MANIFEST, revision)
    return BundleLocation(manifest.parent, name, hub.commit_of(manifest) or revision)


def manifest_of(location: BundleLocation) -> Manifest:
    """The validated bundle.json. Raises TallmasksError if it is missing or damaged."""
    with open_plain(location.file(MANIFEST)) as file:
        return read_manifest(file.read(LARGEST_JSON + 1), str(location.root / MANIFEST))


class BundleParts:
    """The tensors of an open bundle, memory-mapped as stored.

    Each file is opened and checked once, on first use. Methods are thread-safe and raise TallmasksError if a file is
    missing or does not match bundle.json.

    Attributes:
        checked: ``(file) -> path`` of a file, after checking its size and sha256 against bundle.json.
        cached_update: as :meth:`update`, which then stays in memory.
        cached_bytes: of the updates that stay in memory.
    """

    def __init__(self, location: BundleLocation, manifest: Manifest) -> None:
        self.location, self.manifest = location, manifest
        self.checked = cached(self._checked)
        self._opened = cached(self._open)
        self._infos = cached(lambda: other_infos(manifest))
        self._ends = cached(lambda file: ends_of_pieces(self._opened(file)))
        self._task_of = {file: task for task, file in manifest.task_files.items()}
        self._task_of |= {str(model.own_file): task for task, model in manifest.models.items()}
        self.cached_update = cached(self._keep)
        self.cached_bytes, self._lock = 0, threading.Lock()

    def of_task(self, task: str) -> Arrays:
        """One task's tensors by name: streams and buffers."""
        self.manifest.check_task(task)
        return self._opened(self.manifest.task_files[task])

    def update(self, task: str, name: str, number: int, base: Checkpoint) -> Update:
        """A piece of a stored tensor's update, decoded. ``number``: of the piece in the tensor."""
        integers, steps = self._integers(task, name, number)
        tensor = self.manifest.encoded[name]
        start, stop = piece(tensor.size, number)
        if steps is None:
            return Update(stop - start, *integers, are_bit_deltas=True)
        if self.manifest.row_step:
            rms = row_rms(base.piece(name, start, stop), tensor.shape, start)
            steps = steps_of(rms, steps[0], self.manifest.row_step)
            self._check_steps(steps, self.manifest.task_files[task], self.manifest.first_piece[name] + number)
        return update_of_multiples(integers, steps, columns_of(tensor.shape), start, stop - start)

    def _integers(self, task: str, name: str, number: int) -> tuple[Integers, NDArray[np.float32] | None]:
        """The integers of a piece, and its own step, [1], if they are multiples."""
        tensor, index = self.manifest.encoded[name], self.manifest.first_piece[name] + number
        start, stop = piece(tensor.size, number)
        file, size = self.manifest.task_files[task], stop - start
        if self.manifest.is_exact:
            return self._decoded(file, index, f"i{DTYPES[tensor.dtype].width}", size), None
        if self.manifest.masks:
            words, file = self._decoded(file, index, np.uint16, -(-size // 16)).dense(-(-size // 16)), MERGED
            mask = np.unpackbits(words.view(np.uint8), count=size, bitorder="little")
            integers = few_of(self._decoded(file, index, np.int32, size).dense(size) * mask)
        else:
            integers = self._decoded(file, index, np.int32, size)
        steps = self._opened(file)[STEPS][index : index + 1]
        self._check_steps(steps, file, index)
        return integers, steps

    def _check_steps(self, steps: NDArray[np.float32], file: str, index: int) -> None:
        if not (np.all(steps > 0) and np.all(steps < LARGEST_STEP)):
            raise TallmasksError(
                f"{self._damaged(file, index)}: its step is {steps.max()}; expected a number from 0 to {LARGEST_STEP:g}"
            )

    def _decoded(self, file: str, index: int, dtype: DTypeLike, size: int) -> Integers:
        try:
            return decoded(stored_piece(self._opened(file), self._ends(file), index), dtype, size)
        except ValueError as error:
            raise TallmasksError(f"{self._damaged(file, index)}: {error}") from None

    def _damaged(self, file: str, index: int) -> str:
        return f"{self.location.title}: {file}: piece {index} is damaged; tallmasks did not write this bundle"

    def buffer(self, task: str, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values start..stop of the task's flattened buffer."""
        return _bytes(self.of_task(task)[name], self.manifest.buffers[name].dtype, start, stop)

    def own(self, task: str, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values start..stop of a flattened tensor of `own/`."""
        model = self.manifest.model(task)
        return _bytes(self._opened(str(model.own_file))[name], model.own[name].dtype, start, stop)

    def check(self, task: str) -> None:
        """Opens and checks all files that a task's model needs."""
        self.of_task(task)
        if file := self.manifest.model(task).own_file:
            self._opened(file)
        if self.manifest.masks:
            self._opened(MERGED)

    def decode(self, task: str) -> None:
        """Checks a task's files, and decodes all of its streams."""

        def decode(one: tuple[str, int]) -> None:
            self._integers(task, *one)

        self.check(task)
        stored = self.manifest.encoded.items()
        parallel(decode, [(name, number) for name, tensor in stored for number in range(piece_count(tensor.size))])

    def included_base(self) -> Path:
        """The folder of the included base, after checking all its files."""
        for name in self.manifest.files:
            if name.startswith(BASE):
                self.checked(name)
        return self.location.root / BASE

    def _checked(self, name: str) -> Path:
        path, expected = self.location.file(name), self.manifest.files[name]
        actual, wanted = f"{path.stat().st_size} bytes", f"{expected.size} bytes"
        if actual == wanted:
            actual, wanted = f"sha256 {sha256_of(path)}", f"sha256 {expected.sha256}"
        if actual != wanted:
            raise TallmasksError(
                f"{self.location.title}: {name} has {actual}; expected {wanted}, as in bundle.json. The file is damaged"
                " or belongs to another bundle: copy or download it again."
            )
        return path

    def _open(self, name: str) -> Arrays:
        opened, expected_infos = open_tensors(self.checked(name)), dict(self._infos()[name])
        if name == MERGED or name in self.manifest.task_files.values():
            nbytes = opened.infos[STREAMS].size if STREAMS in opened.infos else 0
            expected_infos |= stream_infos(self.manifest.piece_count, has_steps(self.manifest, name), nbytes)
        actual, expected = (
            {key: f"{info.dtype} {list(info.shape)}" for key, info in infos.items()}
            for infos in (opened.infos, expected_infos)
        )
        for key in sorted(actual.keys() | expected.keys()):
            if actual.get(key) != expected.get(key):
                raise TallmasksError(
                    f"{self.location.title}: {name} does not match bundle.json: tensor {key!a} is"
                    f" {actual.get(key, 'missing')}; expected {expected.get(key, 'no such tensor')}. tallmasks did not"
                    " write this bundle; copy or download it again."
                )
        wanted = metadata_of(self.manifest, self._task_of.get(name))
        if other := {
            key: opened.metadata.get(key) for key, value in wanted.items() if opened.metadata.get(key) != value
        }:
            raise TallmasksError(
                f"{self.location.title}: {name} does not match bundle.json: its metadata have {short(other)}; expected"
                f" {short(wanted)}. tallmasks did not write this bundle; copy or download it again."
            )
        return {key: opened.array(key) for key in opened.names}

    def _keep(self, task: str, name: str, number: int, base: Checkpoint) -> Update:
        update = self.update(task, name, number, base)
        with self._lock:
            self.cached_bytes += update.nbytes
        return update


def _bytes(array: NDArray, dtype: str, start: int, stop: int) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)[nbytes_of(dtype, start) : nbytes_of(dtype, stop)]
