"""The libraries of an example, from its own lock file."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def install(example: str, folder: Path) -> None:
    """Install what `examples/<example>` needs beside the project's own packages; skips the test where it cannot."""
    uv, lock = Path(sys.executable).with_name("uv"), ROOT / "examples" / example / "requirements.lock"
    hashes = ["--require-hashes", "--require-build-hashes", "--build-constraints", ROOT / "requirements.lock"]
    options = ["--quiet", "--no-deps", "--python", sys.executable, "--target", folder]
    done = subprocess.run([uv, "pip", "install", *hashes, *options, "-r", lock], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the libraries of examples/{example} cannot be installed: {done.stderr}")
