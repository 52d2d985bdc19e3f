"""What vision tests start from: the same images whatever ran before, a machine without a network."""

from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from tallmasks.store import hub
from vision.datasets import RNG


@pytest.fixture(autouse=True)
def same_images() -> None:
    """Each test draws its images from the same seed."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    return tmp_path / "cache"
