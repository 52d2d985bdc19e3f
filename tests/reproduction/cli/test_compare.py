"""`tallmasks compare`: the settings of a table of one's own classifiers."""

import json
from pathlib import Path

import pytest
import yaml

from reproduction.cli.compare import entry
from reproduction.models.checkpoint_sources import locate
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError

NAMED = {"id2label": {"0": "red", "1": "blue"}}
NUMBERED = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}


def write_model(folder: Path, **config: object) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}))


@pytest.mark.parametrize(
    ("config", "labels", "classes", "warns"),
    [
        (NAMED, ("red", "blue"), ["red", "blue"], False),
        (NAMED, ("0", "1"), ["red", "blue"], False),
        (NUMBERED, ("0", "1"), ["0", "1"], False),
        (NUMBERED, ("red", "blue"), ["blue", "red"], True),
    ],
)
def test_the_order_of_classes_is_the_models_or_is_asked_for(
    config: dict[str, object], labels: tuple[str, str], classes: list[str], warns: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Classes in another order than the model's outputs give a wrong accuracy, and nothing would say so."""
    monkeypatch.chdir(tmp_path)
    write_model(Path("base"))
    options = []
    for task in ("tickets", "mails"):
        write_model(Path(task), **config)
        rows = [f"text {n},{labels[n % 2]}\n" for n in range(20)]
        Path(f"{task}.csv").write_text("".join(["text,label\n", *rows]))
        options += ["--task", f"{task}=./{task}", "--texts", f"{task}=./{task}.csv"]
    assert main(["compare", "--base", "./base", *options]) == 0
    data = yaml.safe_load(Path("compare.yaml").read_text())["data"]
    assert {task: entry["classes"] for task, entry in data.items()} == {"tickets": classes, "mails": classes}
    assert ("the order of the model's outputs" in " ".join(capsys.readouterr().err.split())) == warns


@pytest.mark.parametrize(
    ("base", "task", "pad"),
    [({"eos_token_id": 7}, {"pad_token_id": 6}, 6), ({"eos_token_id": 7}, {}, 7), ({"eos_token_id": [7, 8]}, {}, None)],
)
def test_the_padding_token_is_the_models(
    base: dict[str, object], task: dict[str, object], pad: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A language model would look for another token than in its training to find the end of a text."""
    monkeypatch.chdir(tmp_path)
    write_model(Path("base"), **base)
    write_model(Path("tickets"), **task)
    assert entry("./base", {"tickets": "./tickets"})["architecture"].get("pad_token_id") == pad


def test_an_adapter_is_refused_with_its_remedy(tmp_path: Path) -> None:
    """Many fine-tuned classifiers are LoRAs, and would be called a folder without a configuration."""
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets/adapter_config.json").write_text("{}")
    for source in (tmp_path, tmp_path / "tickets"):
        with pytest.raises(TallmasksError, match="merge_and_unload"):
            locate(str(source), "bert-base-uncased", "tickets", {})
