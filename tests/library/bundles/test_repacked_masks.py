"""Bundles from the workflow's flat files: masks are repacked, and sizes are computed in advance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from chain import LAMBDAS, TRAINABLE, Chain, build
from strategies import no_deadline
from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_writer import BundleContents, bytes_of_bundle, write_from_planes
from tallmasks.bundles.verification import verify_bundle
from tallmasks.io.dtypes import OF_BUNDLES
from tallmasks.io.tensor_files import load_state
from tallmasks.masks.mask_bundles import open_mask_bundle
from tallmasks.methods.few_bits import tau_codings
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.task_vectors import open_multi_task_vector


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """43 weights in two tensors; the second starts inside a byte."""
    chain = build(tmp_path_factory.mktemp("chain"))
    (chain.folder / "theta0.safetensors").hardlink_to(chain.folder / "pretrained")
    return chain


def contents_of(chain: Chain, form: str) -> BundleContents:
    base = replace(open_checkpoint(chain.folder / "theta0.safetensors"), origin={"path": "models/here.safetensors"})
    lambdas = dict(zip(chain.tasks, LAMBDAS, strict=False))
    contents = BundleContents("tall_mask_ties", base, chain.tasks, unchanged=["c.frozen"], mask_lambda=lambdas)
    if form in OF_BUNDLES:
        return replace(contents, dtype=form)
    return replace(contents, codings=tau_codings(open_mask_bundle(chain.folder / "masks-sum").layout, 3))


@no_deadline
@given(st.integers(0, 43), st.integers(0, 43), st.sampled_from(LAMBDAS))
def test_any_piece_of_a_mask_equals_that_of_the_whole(chain: Chain, start: int, stop: int, mask_lambda: float) -> None:
    """Masks would be shifted from some tensor on."""
    start, stop = sorted((start, stop))
    bundle = open_mask_bundle(chain.folder / "masks-sum")
    piece = bundle.packed_piece("cars", mask_lambda, start, stop)
    assert piece.dtype == np.uint8 and piece.size == -(-(stop - start) // 8)
    found = np.unpackbits(piece, count=stop - start, bitorder="little").view(bool)
    np.testing.assert_array_equal(found, reference.unpacked(bundle, "cars", mask_lambda)[start:stop])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "3 bits"])
def test_a_bundle_holds_the_masked_models_and_has_the_predicted_size(
    chain: Chain, tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle would have wrong models, or the results table a wrong size."""
    monkeypatch.setattr("tallmasks.bundles.codings.PIECE", 16)  # several pieces per tensor
    contents, out = contents_of(chain, dtype), tmp_path / "bundle"
    masks, merged = open_mask_bundle(chain.folder / "masks-ties_sum"), open_multi_task_vector(chain.folder / "ties_sum")
    write_from_planes(out, contents, merged, masks)
    files = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
    assert {name: files[name].stat().st_size for name in files if name != "README.md"} == bytes_of_bundle(contents)
    (problem,) = verify_bundle(out)
    assert "its base was not found" in problem
    bundle, before = load_bundle(out, base=chain.folder / "theta0.safetensors"), load_state(chain.folder / "pretrained")
    assert bundle.manifest.base.path == "models/here.safetensors"
    theta_0 = np.concatenate([before[name].ravel() for name in TRAINABLE])
    for task in chain.tasks:
        weights = bundle.arrays(task)
        update = merged * reference.unpacked(masks, task, contents.mask_lambda[task] or 0)
        found = np.concatenate([weights[name].ravel() for name in TRAINABLE])
        if dtype == "float32":
            np.testing.assert_array_equal(found, theta_0 + update)
        assert (found[update == 0] == theta_0[update == 0]).all()
        np.testing.assert_array_equal(weights["c.frozen"], before["c.frozen"])
