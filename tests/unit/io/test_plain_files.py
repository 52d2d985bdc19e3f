"""Input files must be plain files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_bytes, read_plain_json
from tallmasks.io.tensor_files import open_tensors


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()])
def test_what_is_no_plain_file_is_refused_by_name(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A command would wait for ever for somebody to write into a named pipe, or read a device that never ends."""
    make(tmp_path / "values.safetensors")
    for read in (read_plain_json, open_tensors):
        with pytest.raises(TallmasksError, match=r"values\.safetensors"):
            read(tmp_path / "values.safetensors")


def test_a_link_to_a_plain_file_is_followed(tmp_path: Path) -> None:
    """Data that lies on another disk could not be linked to."""
    (tmp_path / "there").write_text("values")
    (tmp_path / "here").symlink_to("there")
    assert read_bytes(tmp_path / "here") == b"values"
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nowhere")
