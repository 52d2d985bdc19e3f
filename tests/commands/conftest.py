"""The small models that the commands of these tests work on."""

from pathlib import Path

import pytest

from commands.models_made import make_llamas


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llamas")
    make_llamas(folder)
    return folder


@pytest.fixture
def here(llamas: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(llamas)
    return llamas
