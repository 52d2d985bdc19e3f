"""Files: what is written is read back, by us and by safetensors; what is broken is named; nothing is half-written."""

import json
import os
import resource
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tallmasks.errors import TallmasksError
from tallmasks.io.atomic_files import atomic_write_text
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
    """A safetensors file from a header as given, right or wrong."""
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def same_state(found, expected):
    """Same names, dtypes, shapes and values."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(found[name], array)


def names_in(folder):
    """Every file of a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def room_for(size):
    """Let files of this process grow to ``size`` bytes only: the kernel refuses more, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_safetensors_and_we_read_each_others_files(tmp_path):
    """Nobody else could load our files, nor we a published checkpoint."""
    ours = tmp_path / "new" / "ours"
    write_tensors(ours, STATE, {"key": "ä"})
    same_state(load_file(ours), STATE)
    same_state(load_state(ours), STATE)
    with safe_open(ours, framework="np") as file:
        assert file.metadata()["key"] == open_tensors(ours).metadata["key"] == "ä"
    save_file(STATE, tmp_path / "theirs")
    same_state(load_state(tmp_path / "theirs"), STATE)


def test_equal_input_gives_equal_bytes(tmp_path):
    """The same recipe would give another digest on another day."""
    write_tensors(tmp_path / "one", STATE, {"x": "1", "y": "2"})
    write_tensors(tmp_path / "two", dict(reversed(STATE.items())), {"y": "2", "x": "1"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_what_is_not_whole_is_named(tmp_path):
    """A broken download would be merged as if it were whole; tensors that share bytes or leave a hole be garbage."""
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


def test_an_absent_file_and_another_format_are_named(tmp_path):
    """A mask bundle given as a task vector would fail far from its cause."""
    with pytest.raises(TallmasksError, match="nowhere"):
        open_tensors(tmp_path / "nowhere")
    write_tensors(tmp_path / "file", FLOATS, {"format": "x"})
    with pytest.raises(TallmasksError, match=r"file .* x.* y"):
        open_tensors(tmp_path / "file", "y")


def test_flat_is_the_tensors_in_name_order(tmp_path):
    """Task vectors, masks and agreement counts would speak of different weights."""
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
    """A file of another program would be read with its tensors mixed up."""
    header = {
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
    }
    with pytest.raises(TallmasksError, match=r"tensor a \(F32\)"):
        open_tensors(raw_file(tmp_path / "order", header, bytes(8))).flat()
    write_tensors(tmp_path / "mixed", STATE, {})
    with pytest.raises(TallmasksError, match=r"tensor a \(F16\)"):
        open_tensors(tmp_path / "mixed").flat()


def test_flat_files_are_written_in_pieces_with_late_metadata(tmp_path):
    """A model larger than memory could not be written, nor its thresholds stored beside it."""
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
    with pytest.raises(ValueError), new_flat(tmp_path / "long", layout, {}) as new:
        new.metadata["late"] = "x" * 2000
    assert names_in(tmp_path) == ["flat"]


def test_a_failure_leaves_what_was_there(tmp_path):
    """A crash in the middle would leave half a file that the next run takes for whole."""
    write_tensors(tmp_path / "file", FLOATS, {})
    before = (tmp_path / "file").read_bytes()
    with pytest.raises(KeyboardInterrupt), new_flat(tmp_path / "file", Layout.of(FLOATS), {}) as new:
        new.flat[:] = 7
        raise KeyboardInterrupt
    assert (tmp_path / "file").read_bytes() == before
    assert names_in(tmp_path) == ["file"]


def test_no_space_is_an_error_before_anything_is_written(tmp_path):
    """A full disk would kill the process with a bus error and leave a torn file."""
    with room_for(4096):
        with pytest.raises(TallmasksError, match=r"big: .*\d{6} bytes"):
            write_tensors(tmp_path / "big", {"x": np.zeros(100_000, np.uint8)}, {})
        with pytest.raises(TallmasksError, match=r"table\.json: .*5000 bytes"):
            atomic_write_text(tmp_path / "table.json", "x" * 5000)
    assert names_in(tmp_path) == []


def test_files_keep_the_umask(tmp_path):
    """A private folder's file would be open to all."""
    previous = os.umask(0o027)
    try:
        write_tensors(tmp_path / "store", FLOATS, {})
        write_tensors(tmp_path / "store", FLOATS, {})
        atomic_write_text(tmp_path / "view", "ä")
    finally:
        os.umask(previous)
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("store", "view")] == ["0o640", "0o640"]
    assert (tmp_path / "view").read_text(encoding="utf-8") == "ä"


def test_a_header_of_many_megabytes_is_refused_before_it_is_parsed(tmp_path):
    """84 megabytes of header would take 2 GiB of memory and 48 seconds."""
    path, size = tmp_path / "large.safetensors", (1 << 24) + 8
    path.write_bytes(size.to_bytes(8, "little") + b"{}".ljust(size))
    with pytest.raises(TallmasksError, match=r"16,777,224 bytes.*16,777,216"):
        open_tensors(path)
