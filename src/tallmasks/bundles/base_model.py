"""Whether a base is the bundle's own."""

from __future__ import annotations

from tallmasks.bundles.manifest import Manifest
from tallmasks.store.dtypes import FLOATS
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint


def check_form(base: Checkpoint, manifest: Manifest, place: str) -> None:
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


def check_content(base: Checkpoint, manifest: Manifest, place: str) -> None:
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
