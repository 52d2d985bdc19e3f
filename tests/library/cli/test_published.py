"""What merged models and bundles need once they are published: class names, tokenizers, and code that runs."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertForSequenceClassification

import tallmasks
from loopback_hub import REPOSITORY, loopback_hub
from models_made import refusal, run

LABELS = {"tickets": ["billing", "login", "other"], "mails": ["spam", "ham"]}
CALL = ["--base", "base", "--task", "tickets=tickets", "--task", "mails=mails"]


@pytest.fixture
def classifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base with a tokenizer, and a classifier for each task; the tokenizer of mails does not lower the case."""
    monkeypatch.chdir(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    base = BertForSequenceClassification(BertConfig(**small, vocab_size=len(words)))
    for name, labels in {"base": ["LABEL_0", "LABEL_1"], **LABELS}.items():
        model = BertForSequenceClassification(
            BertConfig(**small, vocab_size=len(words), id2label=dict(enumerate(labels)))
        )
        moved = {key: tensor + 0.05 for key, tensor in base.bert.state_dict().items()} if name != "base" else {}
        model.bert.load_state_dict(base.bert.state_dict() | moved)
        model.save_pretrained(name)
        Path(name, "vocab.txt").write_text("\n".join(words))
        Path(name, "tokenizer_config.json").write_text(
            f'{{"tokenizer_class": "BertTokenizer", "do_lower_case": {"false" if name == "mails" else "true"}}}'
        )
    return tmp_path


@pytest.mark.parametrize("is_encoder", [False, True], ids=["classifier", "sentence-transformers"])
def test_a_merged_model_has_the_class_names_of_each_head(classifiers: Path, tmp_path: Path, is_encoder: bool) -> None:
    """Whoever downloads a merged classifier would get LABEL_0, or code that needs the author's folders."""
    if is_encoder:
        BertForSequenceClassification.from_pretrained("base").bert.save_pretrained("base")
        Path("base/modules.json").write_text('[{"idx": 0, "path": "", "type": "sentence_transformers.Transformer"}]')
    assert run("merge", *CALL, "--method", "ties", "--heads", "-o", "merged") == 0
    assert AutoConfig.from_pretrained("merged/heads/mails.json").id2label == {0: "spam", 1: "ham"}

    (code,) = re.findall(r"^```python\n(.*?)^```$", Path("merged/README.md").read_text(), re.M | re.S)
    for folder in ("base", "tickets", "mails"):
        shutil.rmtree(folder)
    loaded: dict = {}
    exec(code.replace("<this folder>", "merged"), loaded)
    assert loaded["model"].config.id2label == dict(enumerate(LABELS["tickets"]))
    body, head = load_file("merged/model.safetensors"), load_file("merged/heads/tickets.safetensors")
    for name, tensor in loaded["model"].state_dict().items():
        in_body = name.removeprefix("bert.") if is_encoder else name
        assert torch.equal(tensor, head[name] if name.startswith("classifier") else body[in_body])


def test_a_published_bundle_gives_what_serving_needs(classifiers: Path) -> None:
    """A server could not name its answers, or would tokenize as another task does; or the card's code be an error."""
    assert run("compress", *CALL, "--include-base", "-o", "bundle") == 0
    for folder in ("base", "tickets", "mails"):
        shutil.rmtree(folder)
    bundle = tallmasks.load_bundle("bundle")
    for task, labels in LABELS.items():
        config = AutoConfig.for_model(**bundle.config(task))
        assert list(config.id2label.values()) == labels
        Path(task).mkdir()
        for name, path in bundle.tokenizer_files(task).items():
            shutil.copy(path, Path(task, name))
        tokenizer = AutoTokenizer.from_pretrained(task)
        assert tokenizer.tokenize("A") == (["[UNK]"] if task == "mails" else ["a"])
    (code,) = re.findall(r"^```python\n(.*?)^```$", Path("bundle/README.md").read_text(), re.M | re.S)
    with loopback_hub(classifiers / "bundle", classifiers / "cache"):
        loaded: dict = {}
        exec(code.replace("<this folder or repository>", REPOSITORY), loaded)
    assert loaded["model"].config.id2label == dict(enumerate(LABELS["tickets"]))


def test_every_task_is_exported_at_once(classifiers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user with twenty tasks would write twenty commands."""
    assert run("compress", *CALL, "-o", "bundle") == 0
    assert run("export", "bundle", "--all", "-o", "models") == 0
    assert "models/mails: the model of mails" in capsys.readouterr().out
    for task in LABELS:
        assert run("export", "bundle", "--task", task, "-o", task + "-alone") == 0
        for path in Path(task + "-alone").iterdir():
            assert path.read_bytes() == Path("models", task, path.name).read_bytes()
    assert "models already exists" in refusal(capsys, "export", "bundle", "--all", "-o", "models")
