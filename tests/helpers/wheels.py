"""The wheel of this working copy, as `pip install` from git builds it."""

import subprocess
import sys
from pathlib import Path

from project import ROOT


def build_wheel(folder: Path) -> Path:
    """Build it into a folder, without network, and return its path."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
