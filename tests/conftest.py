"""What several test files share."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

if "PYTEST_XDIST_WORKER" in os.environ:  # before anybody imports torch or NumPy: two test processes of as many threads
    os.environ["OMP_NUM_THREADS"] = "1"  # as there are cores wait for each other most of the time

ROOT = Path(__file__).parent.parent
PARAMS = Path(__file__).parent / "params.yaml"
"""The params.yaml that the project ships, kept apart: the one in the project's folder is the user's to edit."""


def shipped_params() -> dict[str, Any]:
    return yaml.safe_load(PARAMS.read_text())


@pytest.fixture
def params() -> dict[str, Any]:
    """The parameters that the project ships, safe to change."""
    return shipped_params()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """What an earlier test has set does not stay, where there are several test processes."""
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    from huggingface_hub import constants

    from tallmasks.store import hub

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    return tmp_path / "cache"
