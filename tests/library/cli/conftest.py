"""The small models that the commands of these tests work on."""

from pathlib import Path

import pytest

from models_made import make_llamas, make_small


@pytest.fixture(scope="session")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llamas")
    make_llamas(folder)
    return folder


@pytest.fixture
def here(llamas: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(llamas)
    return llamas


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models of a few numbers, in the current folder."""
    make_small(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
