"""`tallmasks example`: five models that transformers loads and that merge and compress accept."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageClassification

from models_made import refusal, run

TASKS = {"cars": 3, "dtd": 4, "eurosat": 5, "mnist": 10}


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run("example", "demo") == 0
    return tmp_path / "demo"


@pytest.mark.parametrize("name", ["base", *TASKS])
def test_transformers_loads_every_model(demo: Path, name: str) -> None:
    """The first thing that a newcomer tries would end in missing or unexpected tensors."""
    model, loading = AutoModelForImageClassification.from_pretrained(demo / name, output_loading_info=True)
    assert type(model).__name__ == "ViTForImageClassification" and not any(loading.values())
    assert model.config.num_labels == len(model.config.id2label) == TASKS.get(name, 8)
    assert not model.config.id2label[0].startswith("LABEL")
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 32, 32)).logits.isfinite().all()


def test_every_call_writes_the_same_bytes(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sizes and errors printed in the README would be another reader's."""
    assert run("example", "again") == 0
    assert "random weights" in capsys.readouterr().out
    files = [path.relative_to(demo) for path in demo.rglob("*") if path.is_file()]
    assert len(files) == 10
    assert all((demo / file).read_bytes() == (demo.parent / "again" / file).read_bytes() for file in files)
    assert "demo" in refusal(capsys, "example", "demo")
