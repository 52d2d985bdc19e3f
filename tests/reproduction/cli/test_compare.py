"""`tallmasks compare`: the settings of a table of one's own classifiers."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from conftest import ROOT, shipped_params
from reproduction.artifacts.labels import write_json
from reproduction.cli.compare import entry
from reproduction.cli.labelled_data import outputs_of
from reproduction.evaluation.records import Evaluation
from reproduction.plan import chain
from reproduction.plan.params import overridden
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from reproduction.tasks.texts import PAIR
from small_classifier import ARCHITECTURE, WORDS, save_tokenizer, small_texts
from tallmasks import methods
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError
from tallmasks.io.yaml_files import read_yaml, yaml_text

NAMED = {"id2label": {"0": "red", "1": "blue"}}
NUMBERED = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}
ROW = "tall_mask_ties:bits=3"
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
    folder.mkdir(exist_ok=True)
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
    words = [*two_models(tmp_path, config, labels), "--max-tokens=7", "--fractions", "0.3", "0.2"]
    assert [main(words), main(words)] == [0, 1], "the file of the first call stays"
    settings = yaml.safe_load((tmp_path / "compare.yaml").read_text())
    data = settings["data"]
    assert settings["models"]["mine"]["scoring"] == {"max_input_tokens": 7}
    assert data["one"]["fractions"] == {"validation": 0.3, "test": 0.2}
    assert {task: entry["classes"] for task, entry in data.items()} == {"one": classes, "two": classes}
    assert ("the order of the model's outputs" in " ".join(capsys.readouterr().err.split())) == warns


@pytest.mark.parametrize(
    ("base", "task", "pad"),
    [
        ({"pad_token_id": 5}, {"pad_token_id": 6}, 6),
        ({"eos_token_id": 7}, {"pad_token_id": 6}, 6),
        ({"eos_token_id": 7}, {}, None),
        ({"pad_token_id": 5}, {}, 5),
    ],
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
    shutil.copy(ROOT / "params.yaml", ".")
    words = ["--base", "./base", "--task", "a=./a", "--texts", "a=./a.csv", "--task", "c=./c", "--texts", "c=./a.csv"]
    assert main(["compare", *words]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("warning") == 1 and "./a: its tokenizer reads 9 of 16 texts differently from the base's;" in said


def test_what_snakemake_would_refuse_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table would stop after hours, with a message about keys of a file that nobody has written by hand."""
    assert main(two_models(tmp_path, {"id2label": {n: f"LABEL_{n}" for n in range(5)}}, ["a", "b"])) == 1
    error = capsys.readouterr().err
    assert "5 outputs," in error and "2 different labels" in error
    assert main([word.replace("one=", "a b=") for word in two_models(tmp_path / "space", NAMED, ["red", "blue"])]) == 1
    assert "data.a b: found 'a b', expected letters, digits, dots, dashes" in capsys.readouterr().err
    words = two_models(tmp_path / "misspelt", NAMED, ["red", "blue"])
    assert main([word.replace("/base", "/bass") for word in words]) == 1
    assert "bass/config.json: missing" in capsys.readouterr().err
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        assert main(two_models(tmp_path / "elsewhere", NAMED, ["red", "blue"])) == 1
    assert "params.yaml: no such file; run this in the project's folder" in capsys.readouterr().err
    assert main([word for word in two_models(tmp_path / "of_one", NAMED, ["a", "b"]) if "=one=" not in word]) == 2
    assert "expected both for the same two or more names" in capsys.readouterr().err
    assert main([*two_models(tmp_path / "all", NAMED, ["red", "blue"]), "--fractions", "0.5", "0.5"]) == 2
    assert "expected two numbers above 0 with a sum below 1" in capsys.readouterr().err
    assert not (tmp_path / "compare.yaml").exists()


@pytest.mark.parametrize(
    ("base", "model", "texts", "said"),
    [
        ({"model_type": "vit"}, NAMED, "texts.csv", "config.json: model_type: found 'bert', but"),
        ({"hidden_size": 4}, {**NAMED, "hidden_size": 8}, "texts.csv", "config.json: hidden_size: found 8, but"),
        (
            {},
            {**NAMED, "architectures": ["ViTForImageClassification"]},
            "texts.csv",
            "a classifier of images; expected",
        ),
        ({}, NAMED, "model", "model: is a folder; expected the labelled texts of one, .csv"),
        ({}, NAMED, "none.csv", "none.csv: no such file; expected the labelled texts of one, .csv"),
    ],
)
def test_a_base_a_model_or_a_file_of_another_kind_is_refused(
    base: dict[str, object], model: dict[str, object], texts: str, said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The table would stop at its first job; or the message be about a params.yaml that nobody has edited."""
    words = two_models(tmp_path, model, ["red", "blue"])
    (tmp_path / "base/config.json").write_text(json.dumps({"model_type": "bert", **base}))
    assert main([word.replace("texts.csv", texts) for word in words]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert said in error and "params.yaml" not in error and not (tmp_path / "compare.yaml").exists()


def test_what_is_no_file_of_settings_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file would pass for one with other content, and a list end in a traceback."""
    file = tmp_path / "compare.yaml"
    assert main(["compare", str(file)]) == 1 and "no such file" in capsys.readouterr().err
    for content in ("- mine\n", "models: [mine]\n"):
        file.write_text(content)
        assert main(["compare", str(file)]) == 1 and "found no models.mine" in capsys.readouterr().err


def test_a_column_that_is_missing_is_one_of_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message would only be about a params.yaml that nobody has edited."""
    assert main([*two_models(tmp_path, NAMED, ["red", "blue"]), "--label=colour"]) == 1
    assert "found 0 columns 'colour'; found text, label; expected each column once. --text, --image and --label" in (
        " ".join(capsys.readouterr().err.split())
    )


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


def test_evaluate_cuts_texts_as_the_table_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Long texts would be read past the position embeddings, or another part of them than the table has."""
    size = {"max_position_embeddings": 12, "initializer_range": 2.0, "num_labels": 3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = BertForSequenceClassification(BertConfig(**{**ARCHITECTURE, **size})).eval()
    network.save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "model")
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 25)) for _ in range(60)]
    for words, longest in (([], 12), (["--max-tokens=5"], 5)):
        inputs = PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")(
            texts, truncation=True, max_length=longest, return_tensors="pt"
        )
        labels = network(**inputs).logits.argmax(dim=1).tolist()
        rows = [f"{text},{label}\n" for text, label in zip(texts, labels, strict=True)]
        (tmp_path / "texts.csv").write_text("".join(["text,label\n", *rows]))
        tested = sum(max(1, round(0.4 * labels.count(label))) for label in {*labels})
        for split, said in (("all", "of 60 texts"), ("test", f"of {tested} texts (test)")):
            call = ["evaluate", str(tmp_path / "model"), f"--texts={tmp_path}/texts.csv", f"--split={split}", *words]
            assert main(call) == 0
            assert capsys.readouterr().out.endswith(f": 100.00% {said}\n")


def test_each_task_is_evaluated_with_its_own_model_and_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The accuracy would be that of another task, or of a head that transformers has drawn at random."""
    monkeypatch.chdir(tmp_path)
    texts, words = [text.replace(PAIR, " ") for text in small_texts(40).questions], []
    body = BertForSequenceClassification(BertConfig(**ARCHITECTURE, initializer_range=1.0)).base_model.state_dict()
    for name, classes in {"base": ("x", "y"), "a": ("red", "blue"), "b": ("dog", "cat", "bird")}.items():
        names = {"id2label": dict(enumerate(classes)), "label2id": {one: n for n, one in enumerate(classes)}}
        network = BertForSequenceClassification(BertConfig(**ARCHITECTURE, initializer_range=1.0, **names)).eval()
        network.base_model.load_state_dict(body)
        network.base_model.embeddings.LayerNorm.bias.data += 0 if name == "base" else 1e-6
        network.save_pretrained(name)
        save_tokenizer(Path(name))
        tokenizer = PreTrainedTokenizerFast.from_pretrained(name)
        chosen = [int(network(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in texts]
        rows = [json.dumps({"text": text, "label": classes[label]}) for text, label in zip(texts, chosen, strict=True)]
        Path(f"{name}.jsonl").write_text("\n".join(rows))
        words += [f"--task={name}={name}"] if name != "base" else ["--base=base"]
    assert main(["compress", "--method=lossless", *words, "--output=bundle"]) == 0
    assert main(["merge", "--method=task_arithmetic", "--heads", *words, "--output=merged"]) == 0
    for model in ("bundle", "merged"):
        capsys.readouterr()
        assert main(["evaluate", model, "--texts=a=a.jsonl", "--texts=b=b.jsonl"]) == 0
        assert capsys.readouterr().out == "a: 100.00% of 40 texts\nb: 100.00% of 40 texts\n"
    Path("lr=1").mkdir()
    shutil.copy("a.jsonl", "lr=1/a.jsonl")
    assert main(["evaluate", "bundle#a", "--texts=lr=1/a.jsonl"]) == 0 and "100.00%" in capsys.readouterr().out
    assert main(["evaluate", "bundle/bundle.json", "--texts=a.jsonl"]) == 2
    assert "found a file; expected the folder of a model or a bundle, or BUNDLE#TASK" in capsys.readouterr().err
    for damaged in ("merged/heads/a.safetensors", "merged/model.safetensors", "a/model.safetensors"):
        Path(damaged).write_bytes(Path(damaged).read_bytes()[:-1])
        assert main(["evaluate", damaged.split("/")[0], "--texts=a=a.jsonl"]) == 1
        assert f"error: {damaged} is not a complete safetensors file" in capsys.readouterr().err


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
        (NAMED, ("red", "blue", "Red"), "the label 'Red', .*'red', 'blue', or the numbers 0 to 1"),
        (NAMED, ("a", "b", "c"), "2 outputs, .*3 different labels"),
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


def test_the_printed_table_has_a_command_for_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands would have the values of another seed or row, or models that the table is not about."""
    monkeypatch.chdir(tmp_path)
    words = two_models(Path(), NAMED, ("red", "blue"))
    rows = ["zeroshot", "fine_tuned", "task_arithmetic", "consensus_ties", ROW, "tvq"]
    params = {**shipped_params(), "methods": rows, "seeds": [5, 6]}
    Path("params.yaml").write_text(yaml_text(params))
    assert main(words) == 0
    settings = {**read_yaml(Path("compare.yaml")), "methods": rows}
    Path("compare.yaml").write_text(yaml_text(settings))
    assert main(["compare", "compare.yaml"]) == 1
    plan = Plan(overridden(params, settings))
    table = VIEWS["tables"](plan, "mine", "all")
    Path(table.path).parent.mkdir(parents=True)
    write_json(Path(table.path), {}, table.recipe)
    Path(table.files[1]).write_text("the table\n")
    chosen = {"task_arithmetic": (0.35, None), "tall_mask_ties": (None, (0.2, 0.4)), ROW: (None, (0.3, 0.5))}
    nodes = {
        row: chain.evaluate(plan, "mine", plan.members(("one", "two")), row, 5) for row in (*chosen, "consensus_ties")
    }
    for row, (alpha, lambdas) in chosen.items():
        content = Evaluation(row, ("one", "two"), {}, {}, alpha, lambdas, (0.0, 1.0)).to_json()
        Path(nodes[row].path).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(nodes[row].path), content, nodes[row].recipe)
    capsys.readouterr()
    assert main(["compare", "compare.yaml"]) == 0
    title, *printed = capsys.readouterr().out.rstrip("\n").split("\n\n")
    models = "--base base --task one=model --task two=model"
    assert title == "the table"
    assert dict(one.removeprefix("# ").split("\n") for one in printed) == {
        "Task arithmetic": f"tallmasks merge {models} --method task_arithmetic --scaling-coefficient 0.35 --heads "
        "-o task_arithmetic",
        "Consensus TIES": f"# no command: {nodes['consensus_ties'].path} with the values chosen for consensus_ties "
        "is missing",
        methods.get(ROW).title: f"tallmasks compress {models} --method tall_mask_ties --option bits=3 --mask-lambda "
        "one=0.3 --mask-lambda two=0.5 -o tall_mask_ties",
        methods.get("tvq").title: "# no command: it is only evaluated for the table",
    }
