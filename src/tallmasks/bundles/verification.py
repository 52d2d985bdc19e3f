"""Finds all problems of a bundle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_models import model_of
from tallmasks.bundles.bundle_parts import BundleParts, manifest_of, open_location
from tallmasks.bundles.finding_base import find_base, own_base
from tallmasks.bundles.manifest import CARD, MANIFEST
from tallmasks.bundles.original_files import sha256_of_planned
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def verify_bundle(path: str | Path, base: str | Path | None = None) -> list[str]:
    """All problems of a bundle, one line each. Decodes every stream and reads every byte, also of the base, unless that
    is in a repository of the hub. Unlisted files are problems too, except README.md, provenance.json and hidden files.

    ``base``: see `load_bundle`.  Raises TallmasksError if it cannot be opened.
    """
    given = None if base is None else open_checkpoint(base)
    try:
        location = open_location(path)
        manifest = manifest_of(location)
    except TallmasksError as error:
        return [str(error)]
    parts = BundleParts(location, manifest)
    checks: list[Callable[[], object]] = [partial(parts.checked, name) for name in manifest.files]
    checks += [partial(parts.decode, task) for task in manifest.tasks]
    if manifest.base.included:
        checks.append(lambda: own_base(parts.included_base(), manifest, f"{location.title}: base"))
    if given is not None or not (manifest.base.included or manifest.base.repository):
        checks.append(lambda: find_base(parts, given))
    if given is not None or manifest.base.included or manifest.base.repository is None:
        of_tasks = [task for task in manifest.tasks if manifest.model(task).originals]
        checks += [partial(_check_originals, path, given, task) for task in of_tasks]
    problems: dict[str, None] = {}
    for check in checks:
        try:
            check()
        except TallmasksError as error:
            problems[str(error)] = None
    if location.repository is None:
        of_format = {MANIFEST, CARD, "provenance.json", *manifest.files}
        for file in sorted(location.root.rglob("*")):
            name = file.relative_to(location.root).as_posix()
            hidden = any(part.startswith(".") for part in name.split("/"))
            if not hidden and name not in of_format and (file.is_symlink() or not file.is_dir()):
                problems[f"{location.title}: {name!r} does not belong to the bundle. Remove it."] = None
    return list(problems)


def _check_originals(path: str | Path, base: Checkpoint | None, task: str) -> None:
    """Raises TallmasksError if `export` would not write the task's files as they were."""
    bundle = load_bundle(path, base)
    model, originals = model_of(bundle, task, f"{path}#{task}"), bundle.manifest.model(task).originals
    for file in model.originals:
        if (found := sha256_of_planned(model, file)) != (expected := originals[file.name].sha256):
            raise TallmasksError(
                f"{model.title}: {file.name} would have the sha256 {found}; the original had {expected}"
            )
