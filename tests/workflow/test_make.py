"""`make clean` asks before it deletes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from project import ROOT


def test_clean_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month of fine-tuning would be gone with one word."""
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):  # of `make test`
        monkeypatch.delenv(name, raising=False)
    shutil.copy(ROOT / "Makefile", tmp_path)
    weights = tmp_path / "store/weights"
    weights.parent.mkdir()
    weights.write_bytes(bytes(3_000_000))
    done = subprocess.run(["make", "clean"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2 and weights.exists() and "2.9M" in done.stdout + done.stderr
    subprocess.run(["make", "clean", "YES=1"], cwd=tmp_path, stdin=subprocess.DEVNULL, check=True)
    assert not weights.parent.exists()
