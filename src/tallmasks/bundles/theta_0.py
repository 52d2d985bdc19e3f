"""Where the base of a bundle is: given, included, or where the manifest has it from."""

from __future__ import annotations

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.verification import check_content, own_base
from tallmasks.store.errors import TallmasksError
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint


class NoBase(TallmasksError):
    """theta_0 is neither given, nor included, nor where it was."""


def find_base(parts: BundleParts, given: Checkpoint | None) -> Checkpoint:
    """The base given, else the one included, else the recorded one if it is to be had as it was.

    Raises NoBase where there is none, and TallmasksError where the one given or included is another than the bundle's.
    """
    manifest, origin = parts.manifest, parts.manifest.base
    if given is not None:
        check_content(given, manifest, "the base given")
        return given
    if origin.included:
        return own_base(parts.included_base(), manifest, f"{parts.place.title}: base")
    problems = []
    for spec in (origin.path, origin.repository and f"{origin.repository}@{origin.revision}"):
        try:
            if spec:
                return own_base(spec, manifest, spec)
        except (TallmasksError, OSError, ValueError) as error:
            problems.append(" ".join(str(error).split()))
    raise NoBase(
        f"{parts.place.title}: its base is not here ({'; '.join(problems) or 'nothing says where it is'})."
        " Give base=, the file, folder or repository of the model that was fine-tuned."
    )
