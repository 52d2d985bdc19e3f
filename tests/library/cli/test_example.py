"""`tallmasks example`: five models that transformers loads and that merge and compress accept."""

from pathlib import Path

import pytest
from transformers import AutoModelForImageClassification

from models_made import refusal, run

TASKS = {"cars": 3, "dtd": 4, "eurosat": 5, "mnist": 10}


def test_transformers_loads_every_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first thing that a newcomer tries would end in missing tensors, or print other numbers than the README."""
    monkeypatch.chdir(tmp_path)
    assert run("example", "demo") == run("example", "again") == 0
    for path in Path("demo").rglob("*.*"):
        assert path.read_bytes() == Path("again", path.relative_to("demo")).read_bytes()
    for name, labels in {"base": 8, **TASKS}.items():
        model, loading = AutoModelForImageClassification.from_pretrained(f"demo/{name}", output_loading_info=True)
        assert type(model).__name__ == "ViTForImageClassification" and not any(loading.values())
        assert len(model.config.id2label) == labels and not model.config.id2label[0].startswith("LABEL")
    assert "demo" in refusal(capsys, "example", "demo")
