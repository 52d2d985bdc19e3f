"""Whether a base is a bundle's own, and everything that is wrong with a bundle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tallmasks.bundles.bundle_parts import BundleParts, manifest_of, open_place
from tallmasks.bundles.manifest import CARD, MANIFEST, Manifest
from tallmasks.store.dtypes import FLOATS
from tallmasks.store.errors import TallmasksError
from tallmasks.store.folders import PROVENANCE
from tallmasks.store.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def verify_bundle(path: str | Path) -> list[str]:
    """All problems of a bundle, a line each.  Reads every byte, but not a base that is not included.

    Files that the bundle does not name are problems too, except README.md, provenance.json and hidden ones.
    """
    try:
        place = open_place(path)
        manifest = manifest_of(place)
    except TallmasksError as error:
        return [str(error)]
    parts = BundleParts(place, manifest)

    checks: list[Callable[[], object]] = [partial(parts.checked, name) for name in manifest.files]
    checks += [partial(parts.check, task) for task in manifest.tasks]
    if manifest.base.included:
        checks.append(lambda: own_base(parts.included_base(), manifest, f"{place.title}: base"))
    problems: dict[str, None] = {}
    for check in checks:
        try:
            check()
        except TallmasksError as error:
            problems[str(error)] = None
    if place.repository is None:
        of_format = {MANIFEST, CARD, PROVENANCE, *manifest.files}
        for file in sorted(place.root.rglob("*")):
            name = file.relative_to(place.root).as_posix()
            hidden = any(part.startswith(".") for part in name.split("/"))
            if not hidden and name not in of_format and (file.is_symlink() or not file.is_dir()):
                problems[f"{place.title}: {name!r} is no part of the bundle. Remove it."] = None
    return list(problems)


def own_base(spec: str | Path, manifest: Manifest, title: str) -> Checkpoint:
    """The base of a bundle.  Raises TallmasksError where it is not to be had, or another one."""
    base = open_checkpoint(spec)
    check_form(base, manifest, title)
    check_content(base, manifest, title)
    return base


def check_form(base: Checkpoint, manifest: Manifest, place: str) -> None:
    """Raises TallmasksError where a base's float tensors are not those of the bundle; reads no values."""
    named = manifest.tensors.keys()
    floats = {name: tensor for name, tensor in base.tensors.items() if tensor.dtype in FLOATS or name in named}
    if missing := manifest.tensors.keys() - floats.keys():
        raise TallmasksError(f"{place} lacks {name_some(sorted(missing))} of the bundle. Give the bundle's own base.")
    if extra := (floats.keys() - manifest.tensors.keys()) | (base.tensors.keys() & manifest.aliases.keys()):
        raise TallmasksError(
            f"{place} holds {name_some(sorted(extra))}, which the bundle has not. Give the bundle's own base."
        )
    for name, tensor in manifest.tensors.items():
        info = floats[name]
        if (info.dtype, tuple(info.shape)) != (tensor.dtype, tensor.shape):
            raise TallmasksError(
                f"{place}: tensor {name} is {info.dtype} {list(info.shape)}; the bundle expects {tensor.dtype}"
                f" {list(tensor.shape)}. Give the bundle's own base."
            )


def check_content(base: Checkpoint, manifest: Manifest, place: str) -> None:
    """Raises TallmasksError where a base's weight files are not, byte for byte, those that a bundle was made of."""
    actual, expected = base.sha256s(), manifest.base_sha256
    # an included base counts its companions too
    strange = [name for name, digest in actual.items() if digest not in expected.values()]
    if strange or not actual or (not manifest.base.included and sorted(actual.values()) != sorted(expected.values())):
        name = strange[0] if strange else name_some(sorted(actual)) or "(none)"
        raise TallmasksError(
            f"{place}: the weight file {name} has sha256 {actual.get(name, 'of its own')}; the bundle was made of"
            f" {name_some(f'{digest} ({name})' for name, digest in expected.items())}. Give the base of the same"
            " revision, as it was published."
        )
