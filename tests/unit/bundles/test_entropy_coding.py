"""Entropy-coded bundles: the same weights out of fewer bytes, and a line for what is no stream of theirs."""

import hashlib
import json
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strategies import no_deadline
from tallmasks.bundles import entropy_coding
from tallmasks.bundles.codings import Signs, Ternary
from tallmasks.bundles.entropy_coding import ByMagnitude, Planes, decode, encode
from tallmasks.bundles.loaded_bundle import load_bundle
from tallmasks.bundles.manifest import digest_of
from tallmasks.bundles.verification import verify_bundle
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import TensorSpec, open_tensors, write_tensors
from task_bundles import TASKS, all_same, expected, make, make_own


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
def test_every_task_comes_back(tmp_path, dtype):
    """A bundle that was made smaller for sending would give other models."""
    made = make(tmp_path, dtype, entropy_coding=True)
    bundle = load_bundle(made.folder, made.base_file)
    assert bundle.manifest.format == "tallmasks/bundle/2"
    for task in TASKS:
        assert all_same(bundle.state_dict(task), expected(made, task))
    assert verify_bundle(made.folder) == []
    plain = make(tmp_path / "plain", dtype)
    sizes = {name: part.size for name, part in load_bundle(plain.folder).manifest.files.items()}
    assert bundle.manifest.uncoded == sizes, "what the files took before"
    assert [bundle.density(task) for task in TASKS] == [load_bundle(plain.folder).density(task) for task in TASKS]


def test_a_mask_that_follows_from_magnitudes_takes_next_to_nothing(tmp_path):
    """An option that saves nothing would be a risk for nothing: TALL-masks keep weights by their magnitude."""
    draw = np.random.default_rng(0)
    merged = draw.standard_normal(1 << 17).astype(np.float32)
    masks = {"w": np.packbits(abs(merged) > 0.7, bitorder="little")}
    specs = {"w": TensorSpec(np.dtype(np.uint8), (1 << 14,))}
    order = ByMagnitude(lambda name, start, stop: merged[start:stop], {"w": merged.size})
    encode(tmp_path / "coded", specs, masks, order, {})
    stream = open_tensors(tmp_path / "coded").view("deflated")
    assert stream.size < 0.1 * (1 << 14)
    np.testing.assert_array_equal(decode(stream, specs, order, "it")["w"], masks["w"])


@no_deadline
@given(
    st.lists(st.tuples(st.sampled_from(["<f4", "<u2", "u1"]), st.integers(0, 60)), min_size=1, max_size=5),
    st.integers(0, 9),
)
def test_pieces_of_any_size_come_back(tmp_path_factory, forms, seed):
    """A value at the end of a tensor or of a chunk would be lost, or get its neighbour's bytes."""
    draw = np.random.default_rng(seed)
    specs = {f"t{i}": TensorSpec(np.dtype(dtype), (size,)) for i, (dtype, size) in enumerate(forms)}
    arrays = {n: draw.integers(0, 256, spec.nbytes, np.uint8).view(spec.dtype) for n, spec in specs.items()}
    path = tmp_path_factory.mktemp("coded") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy_coding, "CHUNK", 16)
        patch.setattr(entropy_coding, "_BUFFER", 7)
        encode(path, specs, arrays, Planes(), {})
        found = decode(open_tensors(path).view("deflated"), specs, Planes(), "it")
        sizes = {name: array.size for name, array in arrays.items()}
        masks = {n: np.packbits(draw.random(size) < 0.4, bitorder="little") for n, size in sizes.items()}
        packed = {name: TensorSpec(np.dtype(np.uint8), mask.shape) for name, mask in masks.items()}
        tau = {name: draw.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
        order = ByMagnitude(lambda name, start, stop: tau[name][start:stop], sizes)
        encode(path.with_name("masks"), packed, masks, order, {})
        back = decode(open_tensors(path.with_name("masks")).view("deflated"), packed, order, "it")
    for name in specs:
        np.testing.assert_array_equal(found[name], arrays[name])
        np.testing.assert_array_equal(back[name], masks[name])


def forge(folder, shapes, **streams):
    """Another bundle.json for a bundle, with tensors of other shapes, and files that are the streams of some bytes."""
    facts = json.loads((folder / "bundle.json").read_text())
    for name, shape in shapes.items():
        facts["tensors"][name] = {"shape": shape, "dtype": "F32", "stored": True}
    for stem, content in streams.items():
        (name,) = [name for name in facts["files"] if f"{stem}.safetensors" in name]
        coder = zlib.compressobj(9, zlib.DEFLATED, -15)
        stream = coder.compress(content) + coder.flush()
        (folder / name).unlink()
        write_tensors(folder / name, {"deflated": np.frombuffer(stream, np.uint8)}, {})
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        facts["files"][name] = {"sha256": digest, "bytes": (folder / name).stat().st_size}
    facts["digest"] = digest_of(facts)
    (folder / "bundle.json").unlink()
    (folder / "bundle.json").write_text(json.dumps(facts))


ONE = {"forms": {"wide": (torch.float32, (9, 8))}, "tasks": ("x",), "entropy_coding": True}


def test_a_small_bundle_does_not_fill_the_memory(tmp_path):
    """A bundle of three megabytes would be decoded to three gigabytes, by `verify` and `info` too."""
    made, size = make(tmp_path, **ONE, scale={}), 1 << 24
    forge(made.folder, {"wide": [size]}, merged=bytes(4 * size), x=b"\xff" * (size // 8))
    tracemalloc.start()
    try:
        assert verify_bundle(made.folder) == [], "it is a bundle of a large model"
        assert load_bundle(made.folder).density("x") == 1
        with pytest.raises(TallmasksError, match="bundle expects F32"):
            load_bundle(made.folder).update("x", "wide", 0, 8)
        made.base_file.unlink()
        with pytest.raises(TallmasksError, match="its base is not here"):
            load_bundle(made.folder).update("x", "wide", 0, 8)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_a_file_cannot_stand_for_more_than_the_base_has(tmp_path):
    """Tensors of no values would have billions of scales."""
    made = make(tmp_path, "int8", **ONE, scale={})
    forge(made.folder, {"none": [1 << 20, 0]})
    (problem,) = verify_bundle(made.folder)
    assert "merged.safetensors stands for 4194412 bytes of tensors, and the base has 288" in problem


def test_what_no_coding_writes_is_found_without_decoding_a_file_whole(tmp_path, monkeypatch):
    """`verify` would say that a forged bundle is whole, and loading it fail."""
    monkeypatch.setattr(entropy_coding, "CHUNK", 16)
    forms = {"a": (torch.float32, (13,)), "b": (torch.float32, (72,)), "c": (torch.float32, (0,))}
    codings = {"a": Ternary((13,)), "b": Signs((72,)), "c": Ternary((0,))}
    made = make_own(tmp_path, codings, forms=forms, tasks=("x",), entropy_coding=True)
    assert verify_bundle(made.folder) == []
    scales, digits, signs = bytes(12), bytes([121, 121, 121]), bytes(9)
    for content, said in (
        (scales + bytes([121, 243, 121]) + signs, "'a' has a byte of 243"),
        (scales + bytes([121, 121, 242]) + signs, "'a' has digits behind its last value"),
        (scales + digits + signs, None),
    ):
        forge(made.folder, {}, x=b"".join(content[i:12:4] for i in range(4)) + content[12:])
        assert [said in problem for problem in verify_bundle(made.folder)] == ([True] if said else [])


@pytest.mark.parametrize("forged", [False, True])
def test_what_is_no_stream_is_refused_in_a_line(tmp_path, forged, monkeypatch):
    """A damaged file would reach the decoder, or a forged one end it in a traceback, or fill the memory."""
    made = make(tmp_path, forms={"wide": (torch.float32, (9, 8))}, tasks=("x",), scale={}, entropy_coding=True)
    file = made.folder / "masks" / "x.safetensors"
    stream = open_tensors(file).view("deflated").tobytes()
    if not forged:

        def watched(stream, specs, order, title):
            assert "masks/x" not in title, "it was decoded"
            return decode(stream, specs, order, title)

        monkeypatch.setattr("tallmasks.bundles.bundle_parts.decode", watched)
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    longer = coder.compress(bytes(100)) + coder.flush()
    for content in (stream[:-1], stream + b"x", b"", b"\xff" * len(stream), longer, bytes(100)):
        file.unlink()
        write_tensors(file, {"deflated": np.frombuffer(content, np.uint8)}, {})
        facts = json.loads((made.folder / "bundle.json").read_text())
        if forged:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            facts["files"]["masks/x.safetensors"] = {"sha256": digest, "bytes": file.stat().st_size}
            facts["digest"] = digest_of(facts)
            (made.folder / "bundle.json").unlink()
            (made.folder / "bundle.json").write_text(json.dumps(facts))
        with pytest.raises(TallmasksError, match=r"masks/x\.safetensors") as error:
            load_bundle(made.folder, made.base_file).state_dict("x")
        assert "\n" not in str(error.value) and len(verify_bundle(made.folder)) >= 1
