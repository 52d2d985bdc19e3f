"""`make`: wrong targets, and errors of the installation."""

import shutil
import subprocess
from pathlib import Path

import pytest

from project import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with programs that print their arguments, unaffected by `make test`'s own variables."""
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "results/tiny").mkdir(parents=True)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("requirements.lock", "requirements-uv.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    (tmp_path / ".venv/installed").write_text(f"{tmp_path}\n")
    program(tmp_path / ".venv/bin/snakemake", 'echo "snakemake $*"')
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


def program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def make(folder: Path, *words: str | Path) -> tuple[int, list[str]]:
    """The exit status of make, and what it prints but for its own last line."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["make", *words], cwd=folder, text=True, **pipes)
    return done.returncode, [line for line in done.stdout.splitlines() if not line.startswith("make: ***")]


def test_a_result_may_have_its_whole_path(folder: Path) -> None:
    """A path that a shell completed would have nothing to be done, whatever changed."""
    (folder / "results/tiny/table.csv").touch()
    for name in ("results/tiny/table.csv", folder / "results/tiny/table.csv"):
        status, lines = make(folder, name, "JOBS=1")
        assert (status, lines) == (0, ["snakemake -j1 -- results/tiny/table.csv"])


def test_clean_asks(folder: Path) -> None:
    """A month of fine-tuning would be gone with one word."""
    weights = folder / "store/weights"
    weights.parent.mkdir()
    weights.write_bytes(bytes(3_000_000))
    status, lines = make(folder, "clean")
    assert status == 2 and weights.exists() and "2.9M" in "".join(lines)
    assert make(folder, "clean", "YES=1")[0] == 0 and not weights.parent.exists()
