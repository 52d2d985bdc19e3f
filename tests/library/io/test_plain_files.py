"""Input files must be regular files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_bytes, read_plain_json
from tallmasks.io.tensor_files import open_tensors


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()])
def test_pipes_devices_and_folders_are_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A command would wait forever for data in a named pipe, or read an endless device."""
    make(tmp_path / "values.safetensors")
    for read in (read_plain_json, open_tensors):
        with pytest.raises(TallmasksError, match=r"values\.safetensors"):
            read(tmp_path / "values.safetensors")


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    """Data on another disk could not be linked."""
    (tmp_path / "file").write_text("values")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"values"
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nowhere")
