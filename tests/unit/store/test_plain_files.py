"""Of what somebody else gives, only plain files are read."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import open_plain, read_bytes, read_json
from tallmasks.store.tensor_files import open_tensors


def bound(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(path.parent)
    listener.bind(path.name)
    listener.close()


ODD: dict[str, Callable[[Path], object]] = {
    "a named pipe (FIFO)": os.mkfifo,
    "a socket": bound,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a link that leads to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("read", [open_plain, read_json, open_tensors])
@pytest.mark.parametrize("found", ODD)
def test_what_is_no_plain_file_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object], found: str
) -> None:
    """A command would wait for ever for somebody to write into a named pipe, or read a device that never ends."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "values.safetensors"
    ODD[found](path)
    with pytest.raises(TallmasksError) as error:
        read(path)
    assert f"{path} is {found}; expected a plain file" in str(error.value)


def test_a_link_to_a_plain_file_is_followed(tmp_path: Path) -> None:
    """Data that lies on another disk could not be linked to."""
    (tmp_path / "there").write_text("values")
    (tmp_path / "here").symlink_to("there")
    assert read_bytes(tmp_path / "here") == b"values"
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nowhere")
