"""What several test files share."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent


@pytest.fixture
def params() -> dict[str, Any]:
    """The project's own params.yaml, safe to change."""
    return copy.deepcopy(yaml.safe_load((ROOT / "params.yaml").read_text()))
