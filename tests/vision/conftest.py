"""A machine without a network, with an empty hub cache."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from tallmasks import hub


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    return tmp_path / "cache"
