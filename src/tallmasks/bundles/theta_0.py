"""Finds the base of a bundle (passed by the caller, included, or at its recorded location) and verifies it."""

from __future__ import annotations

from pathlib import Path

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.manifest import FORMATS, Manifest
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import name_some
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


class NoBase(TallmasksError):
    """theta_0 is neither passed, nor included, nor at its recorded location."""


def find_base(parts: BundleParts, given: Checkpoint | None) -> Checkpoint:
    """The base passed by the caller, else the included one, else the recorded one if it is available and unchanged.
    Raises NoBase if there is none, and TallmasksError if the one passed or included is not this bundle's base."""
    manifest, origin = parts.manifest, parts.manifest.base
    if given is not None:
        check_content(given, manifest, given.title)
        return given
    if origin.included:
        return own_base(parts.included_base(), manifest, f"{parts.location.title}: base")
    beside = [str(folder / origin.path) for folder in (parts.location.root.parent, Path()) if origin.path]
    there = [path for path in dict.fromkeys(beside) if Path(path).exists()]
    problems = [] if there or not origin.path else [f"no {origin.path} beside the bundle or in the current folder"]
    for spec in (*there, *([f"{origin.repository}@{origin.revision}"] if origin.repository else [])):
        try:
            return own_base(spec, manifest, spec)
        except (TallmasksError, OSError, ValueError) as error:
            problems.append(" ".join(str(error).split()))
    raise NoBase(
        f"{parts.location.title}: its base is not here ({'; '.join(problems) or 'nothing says where it is'})."
        " Give --base (base= in Python): the file, folder or repository of the model that was fine-tuned"
    )


def own_base(spec: str | Path, manifest: Manifest, title: str) -> Checkpoint:
    """Opens the base and verifies it. Raises TallmasksError if it cannot be opened or is another model."""
    base = open_checkpoint(spec)
    check_form(base, manifest, title)
    check_content(base, manifest, title)
    return base


def check_form(base: Checkpoint, manifest: Manifest, title: str) -> None:
    """Raises TallmasksError if the base's float tensors do not match the manifest; reads no values."""
    floats = {name for name, info in base.tensors.items() if info.is_float}
    tied_apart = base.tensors.keys() & manifest.aliases.keys()
    for name in sorted(floats | tied_apart | manifest.tensors.keys()):
        info, tensor = base.tensors.get(name), manifest.tensors.get(name)
        actual = f"{info.dtype} {list(info.shape)}" if info else "missing"
        expected = f"{tensor.dtype} {list(tensor.shape)}" if tensor else "no such tensor"
        if actual != expected:
            raise TallmasksError(
                f"{title}: tensor {name} is {actual}; the bundle expects {expected}. Give the bundle's own base."
            )


def check_content(base: Checkpoint, manifest: Manifest, title: str) -> None:
    """Raises TallmasksError if the base is not byte for byte the one that the bundle was made from. Format 4 compares
    tensors, however they are split into files; earlier formats compare weight files."""
    if manifest.format == FORMATS[3]:
        names = list(manifest.tensors)
        digests = dict(zip(names, parallel(base.digest, names), strict=True))
        if other := [name for name in names if digests[name] != manifest.tensors[name].base_sha256]:
            raise TallmasksError(
                f"{title}: {name_some(other)} ({len(other)} of {len(names)} tensors) have other values than in the base"
                " that the bundle was made of. Give the base of the same revision, as it was published."
            )
        return
    files = base.sha256s()
    actual, expected = set(files.values()), set(manifest.base_files.values())
    # an included base counts its companions too
    if not actual or not actual <= expected or (actual != expected and not manifest.base.included):
        some = name_some((f"{name} has sha256 {digest}" for name, digest in files.items()), 2)
        raise TallmasksError(
            f"{title}: {some or 'no weight file'}; the bundle was made of {name_some(sorted(expected), 2)}. Give the"
            " base of the same revision, as it was published."
        )


def check_module(module: Checkpoint, manifest: Manifest, is_believed: bool) -> None:
    """Raises TallmasksError if a module's tensors are not the base's, byte for byte. Tensors in another dtype than the
    base's cannot be compared, nor can any in formats 1 to 3; then ``is_believed`` decides."""
    compared = [name for name in module.tensors if name not in manifest.free]
    recorded = {
        name: digest
        for name in compared
        if (digest := manifest.tensors[name].base_sha256) and module.tensors[name].dtype == manifest.tensors[name].dtype
    }
    digests = dict(zip(recorded, parallel(module.digest, recorded), strict=True))
    if other := [name for name in recorded if digests[name] != recorded[name]]:
        raise TallmasksError(
            f"The module is not the base of the bundle: {name_some(other)} ({len(other)} tensors) have other values."
            " Give a module with the pretrained weights, or the base's files: load_bundle(..., base=...)"
        )
    other = [name for name in compared if name not in recorded]
    if other and not is_believed:
        name = other[0]
        dtypes = f"{module.tensors[name].dtype}, and the base was {manifest.tensors[name].dtype}"
        raise TallmasksError(
            f"The module's {name_some(other)} cannot be compared with the base's: {name} is {dtypes}. Give the base's"
            " files: load_bundle(..., base=...); or say by module_is_base=True that the module holds the pretrained"
            " weights"
        )
