"""`tallmasks compare`: the settings of a table of one's own classifiers."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from reproduction.cli.compare import entry
from reproduction.cli.labelled_data import outputs_of
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError

NAMED = {"id2label": {"0": "red", "1": "blue"}}
NUMBERED = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}
ONLY_IN_LABEL2ID = {**NUMBERED, "label2id": {"red": 0, "blue": 1}}


def write_tokenizer(folder: Path, lower: bool) -> None:
    tokenizer = Tokenizer(WordLevel({"x": 0, "?": 1}, "?"))
    tokenizer.pre_tokenizer = Whitespace()
    if lower:
        tokenizer.normalizer = Lowercase()
        tokenizer.enable_padding(length=9)  # makes no difference
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def write_model(folder: Path, **config: object) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}))


def two_models(folder: Path, config: dict[str, object], labels: Sequence[str]) -> list[str]:
    """The options for two models with the same configuration and texts."""
    write_model(folder / "base")
    write_model(folder / "model", **config)
    rows = [f"text {n},{label}\n" for n, label in enumerate(labels * 8)]
    (folder / "texts.csv").write_text("".join(["text,label\n", *rows]))
    pairs = [f"--{option}={name}={folder / file}" for name in ("one", "two")
             for option, file in (("task", "model"), ("texts", "texts.csv"))]  # fmt: skip
    return ["compare", f"--base={folder / 'base'}", *pairs, f"--output={folder / 'compare.yaml'}"]


@pytest.mark.parametrize(
    ("config", "labels", "classes", "warns"),
    [
        (NAMED, ("red", "blue"), ["red", "blue"], False),
        (NAMED, ("0", "1"), ["red", "blue"], False),
        (NUMBERED, ("0", "1"), ["0", "1"], False),
        (NUMBERED, ("red", "blue"), ["blue", "red"], True),
        (ONLY_IN_LABEL2ID, ("red", "blue"), ["red", "blue"], False),
    ],
)
def test_the_order_of_classes_is_the_models_or_is_asked_for(
    config: dict[str, object], labels: tuple[str, str], classes: list[str], warns: bool, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Classes in another order than the model's outputs give a wrong accuracy, and nothing would say so."""
    words = two_models(tmp_path, config, labels)
    assert [main(words), main(words)] == [0, 1], "the file of the first call stays"
    data = yaml.safe_load((tmp_path / "compare.yaml").read_text())["data"]
    assert {task: entry["classes"] for task, entry in data.items()} == {"one": classes, "two": classes}
    assert ("the order of the model's outputs" in " ".join(capsys.readouterr().err.split())) == warns


@pytest.mark.parametrize(
    ("base", "task", "pad"),
    [({"eos_token_id": 7}, {"pad_token_id": 6}, 6), ({"eos_token_id": 7}, {}, None), ({"pad_token_id": 5}, {}, 5)],
)
def test_the_padding_token_is_the_models(
    base: dict[str, object], task: dict[str, object], pad: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A language model would look for another token than in its training to find the end of a text."""
    monkeypatch.chdir(tmp_path)
    write_model(Path("base"), **base)
    write_model(Path("tickets"), **task)
    assert entry("./base", {"tickets": "./tickets"})["architecture"].get("pad_token_id") == pad


def test_models_that_one_network_cannot_evaluate_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another padding token or tokenizer than the base's gives a wrong accuracy, and nothing would say so."""
    monkeypatch.chdir(tmp_path)
    write_model(Path("base"), eos_token_id=5, is_encoder_decoder=True)
    write_model(Path("a"), pad_token_id=1, **NAMED)
    write_model(Path("b"), pad_token_id=2, **NAMED)
    with pytest.raises(TallmasksError, match="different padding tokens, 1, 2"):
        entry("./base", {"a": "./a", "b": "./b"})
    assert entry("./base", {"a": "./a"})["architecture"]["eos_token_id"] == 5  # from which BART's features are taken
    for folder in ("base", "a"):
        write_tokenizer(Path(folder), lower=folder == "a")
    rows = [f"{('X', 'x')[n % 2]} {n},{('red', 'blue')[n // 2 % 2]}\n" for n in range(40)]
    Path("a.csv").write_text("".join(["text,label\n", *rows]))
    write_model(Path("c"), **NAMED)  # as a Trainer without tokenizer saves it
    words = ["--base", "./base", "--task", "a=./a", "--texts", "a=./a.csv", "--task", "c=./c", "--texts", "c=./a.csv"]
    assert main(["compare", *words]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("warning") == 1 and "./a: its tokenizer reads 9 of 16 texts differently from the base's;" in said


def test_what_snakemake_would_refuse_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table would stop after hours, with a message about keys of a file that nobody has written by hand."""
    assert main(two_models(tmp_path, {"id2label": {n: f"LABEL_{n}" for n in range(5)}}, ["a", "b"])) == 1
    error = capsys.readouterr().err
    assert "5 outputs," in error and "2 different labels" in error
    assert not (tmp_path / "compare.yaml").exists()


def test_a_head_of_another_size_is_not_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """transformers would replace the head by random values, and the accuracy would be that of chance."""
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertForSequenceClassification(BertConfig(**small, vocab_size=4, num_labels=3)).save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, **NAMED, "label2id": {"red": 0, "blue": 1}}))
    write_tokenizer(tmp_path / "model", lower=False)
    (tmp_path / "texts.csv").write_text("text,label\nx,red\ny,blue\n")
    assert main(["evaluate", str(tmp_path / "model"), f"--texts={tmp_path}/texts.csv"]) == 1
    assert "transformers cannot load it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "labels", "found"),
    [
        (NAMED, ("blue",), {"red": 0, "blue": 1}),
        (NAMED, ("1",), {"0": 0, "1": 1}),
        (NUMBERED, ("1",), {"0": 0, "1": 1}),
        (NUMBERED, ("LABEL_1",), {"LABEL_0": 0, "LABEL_1": 1}),
        ({}, ("1",), {"0": 0, "1": 1}),
        (NUMBERED, ("red", "blue"), {}),
        (NUMBERED, ("1", "2"), "'2'.* the numbers 0 to 1"),
        (NAMED, ("red", "green"), "'green'.*'red', 'blue', or the numbers 0 to 1"),
        (NUMBERED, ("0", "1", "2"), "2 outputs, .*3 different labels"),
        (NUMBERED, ("red",), "2 outputs, .*1 different labels"),
        ({"id2label": {"0": "LABEL_0"}}, ("0",), "1 output, "),
        ({"problem_type": "multi_label_classification", **NAMED}, ("red", "blue"), "expected one label for each"),
    ],
)
def test_a_label_is_an_output_of_the_model(
    config: dict[str, object], labels: tuple[str, ...], found: dict[str, int] | str, tmp_path: Path
) -> None:
    """A file without texts of the first class would give 0 % where every text is right."""
    write_model(tmp_path / "model", **config)
    if isinstance(found, str):
        with pytest.raises(TallmasksError, match=found):
            outputs_of(tmp_path / "model/config.json", "texts.csv", labels)
    else:
        assert outputs_of(tmp_path / "model/config.json", "texts.csv", labels) == found
