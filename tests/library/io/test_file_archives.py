"""Archives: folders stored as one file."""

import os
from pathlib import Path

import numpy as np
import pytest

from tallmasks.errors import TallmasksError
from tallmasks.io.file_archives import FORMAT, archive_folder, archived_files
from tallmasks.io.tensor_files import write_tensors


def test_an_archive_returns_every_byte(tmp_path: Path) -> None:
    """A bundle extracted from the store would differ from the one that was built."""
    content = {"a.json": b"{}", "masks/ünï.safetensors": os.urandom(1234), "empty": b"", ".hidden": b"x"}
    for name, text in content.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    for out in ("one", "two"):
        archive_folder(tmp_path / "folder", tmp_path / out, {"recipe": "r"})
    found = archived_files(tmp_path / "one")
    assert {name: array.tobytes() for name, array in found.items()} == content
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/../../b", "."])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """An untrusted archive could write anywhere on the disk."""
    write_tensors(tmp_path / "archive", {name: np.zeros(3, np.uint8)}, {"format": FORMAT})
    with pytest.raises(TallmasksError, match="archive"):
        archived_files(tmp_path / "archive")
