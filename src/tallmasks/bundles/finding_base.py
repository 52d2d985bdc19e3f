"""Finds a bundle's base (passed by the caller, included, or at its recorded location) and verifies it."""

from __future__ import annotations

import os
from pathlib import Path

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.manifest import Manifest
from tallmasks.errors import TallmasksError, cut, name_some
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


class NoBase(TallmasksError):
    """theta_0 is not passed, not included and not at its recorded location."""


def find_base(parts: BundleParts, base: Checkpoint | None) -> Checkpoint:
    """``base`` if passed, else the included one, else the recorded one if it is available and unchanged. Raises NoBase
    if there is none, and TallmasksError if ``base`` or the included one is not this bundle's base."""
    manifest, origin = parts.manifest, parts.manifest.base
    if base is not None:
        check_content(base, manifest, base.title)
        return base
    if origin.included:
        return own_base(parts.included_base(), manifest, f"{parts.location.title}: base")
    candidates, problems = [], []
    if origin.path:
        root = parts.location.root
        name, folders = Path(origin.path).name, dict.fromkeys((root.parent, root.resolve().parent, Path()))
        paths = dict.fromkeys(folder / path for path in (origin.path, name) for folder in folders)
        candidates = [path for path in map(str, paths) if os.path.lexists(path)]  # Path.exists raises for a long name
        if not candidates:
            there = root.parent / origin.path
            problems = [f"{cut(str(there))} does not exist, and no {cut(name)} is next to it or in the current folder"]
    if origin.repository:
        candidates.append(f"{origin.repository}@{origin.revision}")
    for spec in candidates:
        try:
            return own_base(spec, manifest, spec)
        except (TallmasksError, OSError, ValueError) as error:
            problems.append(" ".join(str(error).split()))
    raise NoBase(
        f"{parts.location.title}: its base was not found ({'; '.join(problems) or 'no location is recorded'})."
        " Give --base (base= in Python): the file, folder or repository of the model that was fine-tuned"
    )


def own_base(spec: str | Path, manifest: Manifest, title: str) -> Checkpoint:
    """Opens the base and verifies it. Raises TallmasksError if it cannot be opened or is another model."""
    base = open_checkpoint(spec)
    check_form(base, manifest, title)
    check_content(base, manifest, title)
    return base


def check_form(base: Checkpoint, manifest: Manifest, title: str) -> None:
    """Raises TallmasksError if names, dtypes or shapes of the base's float tensors do not match the manifest."""
    floats = {name for name, info in base.tensors.items() if info.is_float}
    untied = base.tensors.keys() & manifest.aliases.keys()
    for name in sorted(floats | untied | manifest.tensors.keys()):
        info, tensor = base.tensors.get(name), manifest.tensors.get(name)
        actual = f"{info.dtype} {list(info.shape)}" if info else "missing"
        expected = f"{tensor.dtype} {list(tensor.shape)}" if tensor else "no such tensor"
        if actual != expected:
            raise TallmasksError(
                f"{title}: tensor {name} is {actual}; expected {expected}. Give the base that the bundle was made from."
            )


def check_content(base: Checkpoint, manifest: Manifest, title: str) -> None:
    """Raises TallmasksError if a tensor of the base is not byte for byte the one that the bundle was made from."""
    names = list(manifest.tensors)
    digests = dict(zip(names, parallel(base.digest, names), strict=True))
    if other := [name for name in names if digests[name] != manifest.tensors[name].base_sha256]:
        raise TallmasksError(
            f"{title}: the values of {len(other)} of {len(names)} tensors differ from those of the base that the"
            f" bundle was made from: {name_some(other)}. Give the base in the same revision, unmodified."
        )


def check_module(module: Checkpoint, manifest: Manifest, skip_incomparable: bool) -> None:
    """Raises TallmasksError if a module's tensors are not the base's, byte for byte. Tensors in another dtype cannot be
    compared; they are an error unless ``skip_incomparable``."""
    names = [name for name in module.tensors if name not in manifest.may_differ]
    compared = [name for name in names if module.tensors[name].dtype == manifest.tensors[name].dtype]
    digests = dict(zip(compared, parallel(module.digest, compared), strict=True))
    if other := [name for name in compared if digests[name] != manifest.tensors[name].base_sha256]:
        raise TallmasksError(
            f"The module is not the base of the bundle: the values of {len(other)} tensors differ: {name_some(other)}."
            " Pass a module with the pretrained weights, or the base's files: load_bundle(..., base=...)"
        )
    other = [name for name in names if name not in digests]
    if other and not skip_incomparable:
        name = other[0]
        raise TallmasksError(
            f"Tensors of the module cannot be compared with the base ({name_some(other)}): {name} is"
            f" {module.tensors[name].dtype} in the module and {manifest.tensors[name].dtype} in the base. Pass the"
            " base's files: load_bundle(..., base=...), or module_is_base=True if the module has the pretrained weights"
        )
