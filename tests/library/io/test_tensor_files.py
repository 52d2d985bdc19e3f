"""Tensor files: round trips with the safetensors library, damaged files, atomic writing."""

import json
import resource

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout, load_state, new_flat, open_tensors, write_tensors

STATE = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([1.5, -0.0], np.float16),
    "labels": np.array([3, -1], np.int64),
    "images": np.arange(5, dtype=np.uint8),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
FLOATS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.full(3, -1.5, np.float32)}


def raw_file(path, header, data=b""):
    """A safetensors file with any header, valid or not."""
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def same_state(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(found[name], array)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_are_compatible_with_the_safetensors_library(tmp_path):
    """Other programs could not load our files, or we could not load published checkpoints."""
    ours = tmp_path / "new" / "ours"
    write_tensors(ours, STATE, {"key": "ä"})
    same_state(load_file(ours), STATE)
    same_state(load_state(ours), STATE)
    with safe_open(ours, framework="np") as file:
        assert file.metadata()["key"] == open_tensors(ours).metadata["key"] == "ä"
    save_file(STATE, tmp_path / "theirs")
    same_state(load_state(tmp_path / "theirs"), STATE)
    write_tensors(tmp_path / "again", dict(reversed(STATE.items())), {"key": "ä"})
    assert (tmp_path / "again").read_bytes() == ours.read_bytes()


def test_a_damaged_file_or_one_of_another_format_is_named(tmp_path):
    """An incomplete download would be merged; overlapping tensors or gaps would give wrong values."""
    write_tensors(tmp_path / "odd", STATE, {})
    content = (tmp_path / "odd").read_bytes()
    cases = [content[:length] for length in (4, 8, 100, len(content) - 1)]
    for offsets in ([[0, 8], [4, 12]], [[0, 8], [12, 20]], [[0, 8], [8, 12]]):
        header = {n: {"dtype": "F32", "shape": [2], "data_offsets": o} for n, o in zip("ab", offsets, strict=True)}
        cases.append(raw_file(tmp_path / "raw", header, bytes(offsets[1][1])).read_bytes())
    for case in cases:
        (tmp_path / "other").write_bytes(case)
        with pytest.raises(TallmasksError, match="other"):
            open_tensors(tmp_path / "other")
    write_tensors(tmp_path / "masks", FLOATS, {"format": "x"})
    with pytest.raises(TallmasksError, match=r"masks .* x.* y"):
        open_tensors(tmp_path / "masks", "y")


def test_flat_is_the_tensors_in_name_order(tmp_path):
    """Task vectors, masks and agreement counts would refer to different weights."""
    write_tensors(tmp_path / "file", FLOATS, {})
    tensors = open_tensors(tmp_path / "file")
    layout = Layout.of(tensors)
    assert (layout.names, layout.shapes, layout.offsets, layout.size) == (("a", "b"), ((3,), (2, 3)), (0, 3), 9)
    np.testing.assert_array_equal(tensors.flat(), [-1.5] * 3 + [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(tensors.flat(), layout.join(FLOATS))
    same_state(layout.split(tensors.flat()), dict(sorted(FLOATS.items())))
    assert not tensors.flat().flags.writeable
    assert Layout.from_json(layout.to_json()) == layout == Layout.of(FLOATS)


def test_flat_refuses_another_order_or_dtype(tmp_path):
    """Another program's file would be read with its tensors mixed up."""
    header = {n: {"dtype": "F32", "shape": [1], "data_offsets": o} for n, o in (("b", [0, 4]), ("a", [4, 8]))}
    with pytest.raises(TallmasksError, match=r"tensor a \(F32\)"):
        open_tensors(raw_file(tmp_path / "order", header, bytes(8))).flat()
    write_tensors(tmp_path / "mixed", STATE, {})
    with pytest.raises(TallmasksError, match=r"tensor a \(F16\)"):
        open_tensors(tmp_path / "mixed").flat()


def test_flat_files_are_written_in_pieces_with_late_metadata(tmp_path):
    """A model larger than RAM could not be written, nor thresholds that are only known at the end."""
    layout = Layout.of(FLOATS)
    with new_flat(tmp_path / "flat", layout, {"early": "1"}) as new:
        new.flat[:5] = 1
        new.flat[5:] = 2
        new.metadata["late"] = "2"
        assert not (tmp_path / "flat").exists()
    tensors = open_tensors(tmp_path / "flat")
    assert tensors.metadata.items() >= {"early": "1", "late": "2"}.items()
    np.testing.assert_array_equal(tensors.flat(), [1] * 5 + [2] * 4)
    same_state(load_file(tmp_path / "flat"), load_state(tmp_path / "flat"))
    before = (tmp_path / "flat").read_bytes()
    with pytest.raises(KeyboardInterrupt), new_flat(tmp_path / "flat", layout, {}) as new:
        new.flat[:] = 7
        raise KeyboardInterrupt
    assert (tmp_path / "flat").read_bytes() == before and names_in(tmp_path) == ["flat"]


def test_no_space_is_an_error_before_anything_is_written(tmp_path):
    """A full disk would kill the process with a bus error and leave a partial file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # beyond it writing fails as on a full disk
    try:
        with pytest.raises(TallmasksError, match=r"big: .*\d{6} bytes"):
            write_tensors(tmp_path / "big", {"x": np.zeros(100_000, np.uint8)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names_in(tmp_path) == []
