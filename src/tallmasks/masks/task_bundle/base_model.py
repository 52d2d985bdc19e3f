"""theta_0 as a bundle needs it: the protocol, and how a base is opened."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.masks.task_bundle.manifest import FLOATS, Manifest
from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import open_plain
from tallmasks.store.tensor_files import TensorFile, name_some, open_tensors

_REPOSITORY = re.compile(r"([\w.-]{1,96}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?", re.ASCII)


class TensorForm(Protocol):
    """A tensor's dtype, as safetensors calls it, and shape."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class Theta0(Protocol):
    """The base model, tensor by tensor: what a bundle asks of it."""

    @property
    def tensors(self) -> Mapping[str, TensorForm]:
        """All tensors, floats or not; tied ones once."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Tied names, each with the name of its tensor."""
        ...

    @property
    def files(self) -> Mapping[str, Path]:
        """The weight files by relative name."""
        ...

    @property
    def companions(self) -> Mapping[str, Path]:
        """The small files that belong to them (config.json, an index), by relative name."""
        ...

    @property
    def origin(self) -> Mapping[str, Any]:
        """{"repository", "revision"} or {"path"}."""
        ...

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Values of a flattened tensor of floats as float32."""
        ...

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of these values as they are in the file; a view of it where that can be."""
        ...

    def sha256s(self) -> Mapping[str, str]:
        """Of the weight files, by relative name."""
        ...


def repository_of(spec: str) -> tuple[str, str] | None:
    """Repository and revision of `organisation/name[@revision]`; None for anything else."""
    found = _REPOSITORY.fullmatch(spec)
    if found is None or any(part in (".", "..") for part in found[1].split("/")) or ".." in (found[2] or ""):
        return None
    return found[1], found[2] or "main"


def open_base(spec: str | Path) -> Theta0:
    """The base model in a safetensors file, in a folder of such files, or in a hub repository's model.safetensors.

    Raises TallmasksError where there is none.
    """
    path = Path(spec)
    repository = None if path.exists() else repository_of(str(spec))
    if repository is not None:
        file = hub.download(repository[0], "model.safetensors", repository[1])
        origin = {"repository": repository[0], "revision": hub.commit_of(file) or repository[1]}
        return _SafetensorsBase({"model.safetensors": file}, origin)
    files = {file.name: file for file in sorted(path.glob("*.safetensors"))} if path.is_dir() else {path.name: path}
    if not files:
        raise TallmasksError(f"{path} holds no .safetensors file; expected the weights of the base model there.")
    companions = {file.name: file for file in sorted(path.glob("*.json"))} if path.is_dir() else {}
    return _SafetensorsBase(files, {"path": str(path.absolute())}, companions)


class _Form(NamedTuple):
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _SafetensorsBase:
    """A base model in safetensors files, memory-mapped."""

    files: Mapping[str, Path]
    origin: Mapping[str, Any]
    companions: Mapping[str, Path] = field(default_factory=dict)

    @property
    def aliases(self) -> Mapping[str, str]:
        """None: safetensors ties nothing."""
        return {}

    @cached_property
    def tensors(self) -> dict[str, _Form]:
        return {name: _Form(file.dtype(name), file.shape(name)) for name, file in sorted(self._places.items())}

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        if self.tensors[name].dtype == "F64":
            return self._places[name].view(name).reshape(-1)[start:stop].astype(np.float32)
        return self._places[name].piece(name, start, stop)

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        return self._places[name].view(name).reshape(-1)[start:stop].view(np.uint8)

    def sha256s(self) -> dict[str, str]:
        return {name: sha256_of(path) for name, path in self.files.items()}

    @cached_property
    def _places(self) -> dict[str, TensorFile]:
        places: dict[str, TensorFile] = {}
        for path in self.files.values():
            opened = open_tensors(path)
            if twice := places.keys() & set(opened.names):
                raise TallmasksError(
                    f"{path} holds {name_some(sorted(twice))}, which another file beside it holds too."
                )
            places |= dict.fromkeys(opened.names, opened)
        return places


def sha256_of(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_form(base: Theta0, manifest: Manifest, place: str) -> None:
    """Refuse a base whose tensors of floats are not those that a bundle names; its values stay unread.

    Raises TallmasksError.
    """
    floats = {name: tensor for name, tensor in base.tensors.items() if tensor.dtype in FLOATS}
    if missing := manifest.tensors.keys() - floats.keys():
        raise TallmasksError(f"{place} lacks {name_some(sorted(missing))} of the bundle. Give the bundle's own base.")
    if extra := (floats.keys() - manifest.tensors.keys()) | (base.tensors.keys() & manifest.aliases.keys()):
        raise TallmasksError(
            f"{place} holds {name_some(sorted(extra))}, which the bundle has not. Give the bundle's own base."
        )
    for name, tensor in manifest.tensors.items():
        found = floats[name].dtype, tuple(floats[name].shape)
        if found != (tensor.dtype, tensor.shape):
            raise TallmasksError(
                f"{place}: tensor {name} is {found[0]} {list(found[1])}; the bundle expects {tensor.dtype}"
                f" {list(tensor.shape)}. Give the bundle's own base."
            )


def check_content(base: Theta0, manifest: Manifest, place: str) -> None:
    """Refuse a base whose weight files are not, byte for byte, those that a bundle was made of.

    Raises TallmasksError.
    """
    found, expected = base.sha256s(), manifest.base.sha256
    # an included base counts its companions too
    strange = [name for name, digest in found.items() if digest not in expected.values()]
    if strange or not found or (not manifest.base.included and sorted(found.values()) != sorted(expected.values())):
        name = strange[0] if strange else name_some(sorted(found)) or "(none)"
        raise TallmasksError(
            f"{place}: the weight file {name} has sha256 {found.get(name, 'of its own')}; the bundle was made of"
            f" {name_some(f'{digest} ({name})' for name, digest in expected.items())}. Give the base of the same"
            " revision, as it was published."
        )
