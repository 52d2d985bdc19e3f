"""Digests of data folders and of the user's modules depend on their content alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.io import file_digests as content
from tallmasks.io.file_digests import sha256_of_folder
from tallmasks.io.fingerprints import digest_of_code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of the same size and time, already read once."""
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "data"
    (found / "below").mkdir(parents=True)
    for name in ("one", "two"):
        write(found / name, name)
    assert len({sha256_of_folder(found), sha256_of_folder(found)}) == 1
    return found


def write(path: Path, text: str) -> None:
    """Write a file in place, with a fixed modification time."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


AGAIN = """
import sys
from pathlib import Path
from tallmasks.io.file_digests import sha256_of_folder
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
print(sha256_of_folder(Path(sys.argv[1])), sum(name.startswith(sys.argv[1]) for name in opened))
"""


def in_another_process(folder: Path) -> tuple[str, int]:
    """The folder's digest, and how many of its files were opened."""
    run = subprocess.run([sys.executable, "-c", AGAIN, folder], capture_output=True, text=True, check=True)
    digest, opened = run.stdout.split()
    return digest, int(opened)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write(folder / "one", "six"),
        lambda folder: (folder / "one").rename(folder / "below" / "one"),
        lambda folder: write(folder / "three", ""),
    ],
    ids=["same size and time", "moved", "a new file"],
)
def test_a_change_is_detected_regardless_of_times(folder: Path, change: Callable[[Path], None]) -> None:
    """Models would be trained on changed data, and stored under the recipe of the old data."""
    before = sha256_of_folder(folder)
    change(folder)
    assert before not in (sha256_of_folder(folder), in_another_process(folder)[0])


def test_the_digest_is_that_of_the_output_of_sha256sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing artifacts would become stale, or two folders would share a digest."""
    monkeypatch.chdir(tmp_path)
    one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"  # of "one"
    for file in ("plain/a b", "plain/c\\d", "two/a", "two/b", f"forged/a\n{one}  b"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("one")
    plain, two, forged = (sha256_of_folder(tmp_path / name) for name in ("plain", "two", "forged"))
    assert plain == content.hashlib.sha256(f"{one}  a b\n{one}  c\\d\n".encode()).hexdigest() and two != forged


def test_content_is_read_once(folder: Path) -> None:
    """Every plan and every job would read tens of gigabytes, or fail after a full disk truncated the cache."""
    digest = sha256_of_folder(folder)
    (folder / ".cache").write_text("a hidden file is no data")
    assert in_another_process(folder) == (digest, 0)
    (memory,) = content.REMEMBERED.iterdir()
    memory.write_text("")
    assert in_another_process(folder) == (digest, 2)


def test_the_digest_of_a_users_module_covers_what_it_imports_from_its_folder(tmp_path):
    """Artifacts made with old code would count as up to date."""
    texts = {
        "kin_toy/__init__": "",
        "kin_toy/family": "import numpy\nfrom kin_toy.network import net\n",
        "kin_toy/network": "from .parts import one\nnet = 1\n",
        "kin_toy/parts/__init__": "",
        "kin_toy/parts/one": "x = 1\n",
        "kin_toy/other": "net = 1\n",
    }

    def digest(changed=None):
        for name, text in texts.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text + "more = 2\n" * (name == changed))
        digest_of_code.cache_clear()
        return digest_of_code(tmp_path / "kin_toy/family.py")

    changed = {name for name in texts if digest(name) != digest()}
    assert changed == texts.keys() - {"kin_toy/other", "kin_toy/__init__"}
