"""Everything that is wrong with a bundle, found without stopping at the first."""

from __future__ import annotations

from pathlib import Path

from tallmasks.bundles.base_model import check_content, check_form
from tallmasks.bundles.bundle_parts import BundleParts, manifest_of, open_place
from tallmasks.bundles.part_names import CARD, MANIFEST
from tallmasks.store.errors import TallmasksError
from tallmasks.store.folders import PROVENANCE
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def verify_bundle(path: str | Path) -> list[str]:
    """All problems of a bundle, a line each; none where every file is as it was written.

    Reads every byte.  A base that is not included is not looked at.  Files of the folder that the bundle does not
    name are problems too, but for README.md, the workflow's provenance.json and hidden ones.
    """
    try:
        place = open_place(path)
        manifest = manifest_of(place)
    except TallmasksError as error:
        return [str(error)]
    parts = BundleParts(place, manifest)
    problems: dict[str, None] = {}

    def check(work: object) -> None:
        try:
            assert callable(work)
            work()
        except TallmasksError as error:
            problems[str(error)] = None

    def check_base() -> None:
        base = open_checkpoint(parts.included_base())
        check_form(base, manifest, f"{place.title}: base")
        check_content(base, manifest, f"{place.title}: base")

    for name in manifest.files:
        check(lambda name=name: parts.checked(name))
    if not manifest.codings:
        check(lambda: parts.verify(None))
    for task in manifest.tasks:
        check(lambda task=task: parts.verify(task))
    if manifest.base.included:
        check(check_base)
    if place.repository is None:
        known = {MANIFEST, CARD, PROVENANCE, *manifest.files}
        for file in sorted(place.root.rglob("*")):
            name = file.relative_to(place.root).as_posix()
            hidden = any(part.startswith(".") for part in name.split("/"))
            if not hidden and name not in known and (file.is_symlink() or not file.is_dir()):
                problems[f"{place.title}: {name!r} is no part of the bundle. Remove it."] = None
    return list(problems)
