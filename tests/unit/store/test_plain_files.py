"""Only plain files are read, and nothing is written outside the project."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import all_inside, inside, open_plain, plain, read_bytes, read_text
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


@pytest.mark.parametrize("read", [plain, open_plain, read_bytes, read_text, open_tensors])
@pytest.mark.parametrize("found", ODD)
def test_what_is_no_plain_file_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object], found: str
) -> None:
    """A job would wait for ever for somebody to write into a named pipe, or read a device that never ends."""
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
    assert read_text(tmp_path / "here") == "values"
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "nowhere")


def test_a_folder_within_the_project_may_be_a_link_within_it(tmp_path: Path) -> None:
    """What is refused must be what leads out, and only that."""
    (tmp_path / "project" / "real").mkdir(parents=True)
    for name, target in {"kept": "real", "outside": "..", "loop": "loop"}.items():
        (tmp_path / "project" / name).symlink_to(target)
    root = tmp_path / "project"
    assert inside(root / "kept" / "new", root) == root / "kept" / "new"
    for name in ("outside", "outside/new", "../elsewhere"):
        with pytest.raises(TallmasksError, match="leads out of the project"):
            inside(root / name, root)
    with pytest.raises(TallmasksError, match="loop/new is a link that leads to itself"):
        inside(root / "loop" / "new", root)


@pytest.mark.parametrize("place", ["", "tiny", "tiny/below", "tiny/file"])
def test_a_link_out_of_the_project_is_found_at_any_depth(tmp_path: Path, place: str) -> None:
    """Logs and markers would be written into another's files, and what is damaged moved among them."""
    root, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    link = root / "logs" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file" if place.endswith("file") else outside)
    with pytest.raises(TallmasksError, match=f"{link} leads out of the project"):
        all_inside(root / "logs", root)
    link.unlink()
    link.symlink_to(root)
    all_inside(root / "logs", root)
