"""Bundles written by version 1.0.0, with the weights of their tasks: every later version must read them.

`frozen/<name>/` is a bundle made by `tallmasks compress` with the base `frozen/base.safetensors`.
`frozen/<name>.weights.safetensors` has the models of its tasks as `<task>/<tensor>`. These files never change; a new
kind of bundle adds its own. `coded_masks` is the rest of a bundle in a coding that is no longer supported.
"""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tallmasks.bundles.codings import CODINGS
from tallmasks.bundles.loaded_bundle import load_bundle
from tallmasks.bundles.manifest import FORMATS
from tallmasks.bundles.verification import verify_bundle
from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import OF_BUNDLES
from task_bundles import all_same

FROZEN = Path(__file__).parent / "frozen"
NAMES = sorted(path.parent.name for path in FROZEN.glob("*/bundle.json") if path.parent.name != "coded_masks")


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_of_version_1_still_gives_the_same_weights(name: str) -> None:
    """Models that a user compressed and deleted would be lost."""
    bundle = load_bundle(FROZEN / name, base=None if name.startswith("included") else FROZEN / "base.safetensors")
    found = {f"{task}/{tensor}": values for task in bundle.tasks for tensor, values in bundle.state_dict(task).items()}
    assert all_same(found, load_file(FROZEN / f"{name}.weights.safetensors"))
    assert verify_bundle(FROZEN / name) == []


def test_the_frozen_bundles_are_of_every_kind() -> None:
    """A format, dtype or coding without a sample could become unreadable, and no test would fail."""
    manifests = [json.loads((FROZEN / name / "bundle.json").read_text()) for name in NAMES]
    assert {manifest["format"] for manifest in manifests} == set(FORMATS)
    assert {manifest["dtype"] for manifest in manifests if "masks" in manifest} == set(OF_BUNDLES)
    codings = {coding.partition(":")[0] for manifest in manifests for coding in manifest.get("codings", {}).values()}
    assert codings == set(CODINGS)


def test_an_entropy_coded_bundle_is_refused_with_the_commit_that_reads_it() -> None:
    """Users with such a bundle would not know which commit reads it."""
    with pytest.raises(TallmasksError, match="92d6ff0"):
        load_bundle(FROZEN / "coded_masks")
    assert "92d6ff0" in verify_bundle(FROZEN / "coded_masks")[0]
