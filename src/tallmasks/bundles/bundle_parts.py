"""The files of a bundle: fetched on demand and checked before use."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.manifest import BASE, MANIFEST, MERGED, Manifest, read_manifest
from tallmasks.errors import TallmasksError
from tallmasks.io import hub
from tallmasks.io.dtypes import DTYPES
from tallmasks.io.plain_files import LARGEST_JSON, open_plain, within
from tallmasks.io.tensor_files import TensorInfo, open_tensors
from tallmasks.masks.mask_bundles import count_bits
from tallmasks.parallel import once
from tallmasks.vectors.checkpoints.checkpoint import sha256_of
from tallmasks.vectors.checkpoints.hub_models import repository_of

Arrays = Mapping[str, NDArray]
Infos = Mapping[str, TensorInfo]


def file_infos(manifest: Manifest) -> dict[str, Infos]:
    """The tensors of every safetensors file except the base's. Raises TallmasksError if two would get the same name."""
    files: dict[str, Infos] = {}
    of_task = [(name, TensorInfo(tensor.dtype, tensor.shape)) for name, tensor in manifest.buffers.items()]
    codings = manifest.codings.items()
    coded = [(name + ending, spec) for name, coding in codings for ending, spec in coding.specs.items()]
    if manifest.dtype is None:
        of_task += coded
    else:
        of_task += [(name, TensorInfo("U8", (-(-coding.size // 8),))) for name, coding in codings]
        files[MERGED] = _by_name(coded)
    files |= dict.fromkeys(manifest.task_files.values(), _by_name(of_task))
    for model in manifest.models.values():
        if model.own_file is not None:
            files[model.own_file] = {name: TensorInfo(tensor.dtype, tensor.shape) for name, tensor in model.own.items()}
    return files


def _by_name(infos: list[tuple[str, TensorInfo]]) -> Infos:
    counts = Counter(name for name, _ in infos)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise TallmasksError(f"Two stored tensors would be named {twice[0]}; rename one of them in the models.")
    return dict(infos)


def metadata_of(manifest: Manifest, task: str | None = None) -> dict[str, str]:
    """Metadata of merged.safetensors, or of a task's file."""
    part = "update" if manifest.updates else "masks"
    return {"format": manifest.format} | ({"part": "merged"} if task is None else {"part": part, "task": task})


def density(manifest: Manifest, mask: Callable[[str], NDArray[np.uint8]]) -> float:
    """The fraction of the stored values that a task's mask keeps; ``mask`` returns a tensor's packed bits."""
    kept = sum(count_bits(mask(name)) for name in manifest.stored)
    return kept / max(sum(tensor.size for tensor in manifest.stored.values()), 1)


def bytes_on_device(manifest: Manifest) -> tuple[int, int]:
    """Bytes that a bundle keeps on a device: shared by all tasks, and the maximum for one task."""
    base = sum(tensor.size * DTYPES[tensor.dtype].width for tensor in manifest.tensors.values())
    shared = manifest.files[MERGED].size if manifest.dtype else 0
    files = [(file, manifest.model(task).own_file) for task, file in manifest.task_files.items()]
    return base + shared, max(sum(manifest.files[name].size for name in names if name) for names in files)


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
    """

    def __init__(self, location: BundleLocation, manifest: Manifest) -> None:
        self.location, self.manifest = location, manifest
        self.checked = once(self._checked)
        self._opened = once(self._open)
        self._infos = once(lambda: file_infos(manifest))

    def of_task(self, task: str) -> Arrays:
        """One task's tensors by name: masks, uint8 [ceil(n / 8)], or compressed tensors; and buffers."""
        self.manifest.check_task(task)
        return self._opened(self.manifest.task_files[task])

    def update(self, task: str, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of a stored tensor's flattened update, float32."""
        first = start // 8 * 8
        nothing = np.full(stop - first, -0.0, np.float32)  # x + -0.0 is x for every x, including -0.0
        out = np.empty_like(nothing)
        self.add(nothing, task, name, first, out)
        return out[start - first :]

    def add(self, theta: NDArray, task: str, name: str, start: int, out: NDArray[np.float32]) -> None:
        """Writes theta + update to ``out``, float32 [n], from value ``start`` (a multiple of 8) of the tensor on."""
        coding = self.manifest.codings[name]
        if self.manifest.updates:
            coding.add(self.coded(task, name), theta, start, out)
            return
        bits = self.of_task(task)[name][start // 8 : -(-(start + out.size) // 8)]
        words = np.zeros(-(-out.size // 32), np.uint32)
        words.view(np.uint8)[: bits.size] = bits
        coding.add_masked(self.coded(None, name), theta, start, words, self.manifest.scale[task], out)

    def coded(self, task: str | None, name: str) -> Arrays:
        """The stored arrays of a tensor, by name suffix: of a task's update, or of tau_MTL if it is None."""
        tensors = self._opened(MERGED) if task is None else self.of_task(task)
        return {ending: tensors[name + ending] for ending in self.manifest.codings[name].specs}

    def buffer(self, task: str, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values start..stop of the task's flattened buffer."""
        width = DTYPES[self.manifest.buffers[name].dtype].width
        return self.of_task(task)[name].reshape(-1).view(np.uint8)[start * width : stop * width]

    def own(self, task: str, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values start..stop of a flattened tensor of `own/`."""
        model = self.manifest.model(task)
        width = DTYPES[model.own[name].dtype].width
        return self._opened(str(model.own_file))[name].reshape(-1).view(np.uint8)[start * width : stop * width]

    def check(self, task: str) -> None:
        """Opens and checks all files that a task's model needs."""
        self.of_task(task)
        if file := self.manifest.model(task).own_file:
            self._opened(file)
        if self.manifest.dtype is not None:
            self._opened(MERGED)

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
        opened = open_tensors(self.checked(name))
        actual, expected = (
            {key: f"{info.dtype} {list(info.shape)}" for key, info in infos.items()}
            for infos in (opened.infos, self._infos()[name])
        )
        for key in sorted(actual.keys() | expected.keys()):
            if actual.get(key) != expected.get(key):
                raise TallmasksError(
                    f"{self.location.title}: {name} does not match bundle.json: tensor {key!a} is"
                    f" {actual.get(key, 'missing')}; expected {expected.get(key, 'no such tensor')}. tallmasks did not"
                    " write this bundle; copy or download it again."
                )
        return {key: opened.view(key) for key in opened.names}
