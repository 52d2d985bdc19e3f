"""A task comes back from a bundle as it was put in: head, labels, configuration, tokenizer, template."""

import json
import re
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import AutoModelForImageClassification, AutoTokenizer

import tallmasks
from small_checkpoints import lora, refusal
from small_models import IMAGES, SIZE, WORDS, made, moved
from tallmasks.bundles.manifest import bundle_digest
from tallmasks.bundles.verification import verify_bundle
from tallmasks.cli.main import main
from tallmasks.vectors.checkpoints.opening import open_checkpoint

TASKS = ("cars", "mnist", "dtd")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def classifiers() -> dict[str, transformers.PreTrainedModel]:
    """One base, and a head with classes of its own for each task."""
    base = made("ViTForImageClassification").vit
    base.save_pretrained("base")
    tasks = {}
    for count, name in enumerate(TASKS, 2):
        labels = dict(enumerate(f"{name} {number}" for number in range(count)))
        config = transformers.ViTConfig(**SIZE, **IMAGES, id2label=labels, label2id={v: k for k, v in labels.items()})
        model = transformers.ViTForImageClassification(config)
        model.vit.load_state_dict(base.state_dict())
        tasks[name] = moved(model, count).eval()
        tasks[name].save_pretrained(name)
    return tasks


def test_classifiers_of_different_classes_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Classifiers with different classes were refused; or a task came back with LABEL_0 and without its head."""
    tasks, images = classifiers(), torch.randn(2, 3, 8, 8)
    call = ["compress", "--base", "base", *(word for name in TASKS for word in ("--task", f"{name}=./{name}"))]
    assert main([*call, "-o", "bundle", "--dry-run"]) == 0
    foretold = re.findall(r"write  --step 0.1: about (\S+) kB", capsys.readouterr().out)
    assert main([*call, "-o", "bundle"]) == 0
    said = capsys.readouterr().out
    size = sum(path.stat().st_size for path in Path("bundle").rglob("*") if path.is_file())
    assert f"bundle: 3 models in {size / 1000:.1f} kB" in said and float(*foretold) == pytest.approx(size / 1000, 0.03)
    assert "classifier.bias, classifier.weight" in said
    bundle = tallmasks.load_bundle("bundle")
    for name, task in tasks.items():
        assert main(["export", "bundle", "--task", name, "-o", f"{name}-again"]) == 0
        again, loading = AutoModelForImageClassification.from_pretrained(f"{name}-again", output_loading_info=True)
        assert type(again) is type(task) and not any(loading.values())
        assert Path(f"{name}-again/config.json").read_bytes() == Path(name, "config.json").read_bytes()
        assert open_checkpoint(f"{name}-again").names == open_checkpoint(name).names
        assert torch.equal(again.classifier.weight, task.classifier.weight)
        live = transformers.ViTForImageClassification(task.config).eval()
        live.load_state_dict(task.state_dict())
        assert bundle.apply_(live, name) == ()
        states = again.state_dict(), live.state_dict(), bundle.state_dict(name, like=task)
        for key, tensor in states[0].items():
            assert torch.equal(states[1][key], tensor) and torch.equal(states[2][key], tensor)
        with torch.no_grad():
            assert torch.equal(live(images).logits, again(images).logits)
    assert verify_bundle("bundle") == []


def test_a_module_without_a_place_for_the_head_is_said() -> None:
    """A module would have the body of one task and the head of another, in silence."""
    tasks = classifiers()
    tallmasks.compress("base", {name: name for name in ("cars", "dtd")}, "bundle")
    bundle = tallmasks.load_bundle("bundle", device="cpu")
    live = transformers.ViTForImageClassification(tasks["cars"].config)
    head = live.classifier.weight.detach().clone()
    before = {name: tensor.clone() for name, tensor in live.state_dict().items()}
    assert "keep_heads=True" in refusal(lambda: bundle.apply_(live, "dtd"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in live.state_dict().items())
    assert bundle.apply_(live, "dtd", keep_heads=True) == ("classifier.bias", "classifier.weight")
    assert torch.equal(live.classifier.weight, head)
    body = bundle.state_dict("dtd", like=tasks["dtd"])
    assert torch.equal(live.vit.state_dict()["layernorm.weight"], body["vit.layernorm.weight"])
    bundle.restore_(live)
    base = transformers.ViTModel.from_pretrained("base", add_pooling_layer=False).state_dict()
    assert all(torch.equal(tensor, base[name]) for name, tensor in live.vit.state_dict().items())


def tokenizer(words: list[str], template: str) -> transformers.PreTrainedTokenizerFast:
    made_of = Tokenizer(models.WordLevel({word: row for row, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made_of, unk_token="[UNK]", chat_template=template)


def files_of(folder: str) -> dict[str, bytes]:
    """The small files of a model."""
    paths = (path for path in Path(folder).rglob("*") if path.suffix in (".json", ".jinja"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_chat_model_comes_back_with_its_template_and_positions(capsys: pytest.CaptureFixture[str]) -> None:
    """A chat model came back with the base's template, generation settings and rotary positions: another function."""
    base = made("LlamaForCausalLM")
    base.save_pretrained("base")
    tokenizer(["a", "b"], "{{ messages[0].content }}").save_pretrained("base")
    task = moved(base)
    task.config.rope_parameters = {"rope_type": "default", "rope_theta": 5e5}
    task.generation_config.update(max_length=77)
    task.save_pretrained("chat")
    tokenizer(["a", "b"], "<s>{{ messages[0].content }}</s>").save_pretrained("chat")
    tokenizer(["b", "a"], "").save_pretrained("chat/decoder/tokenizer")
    Path("chat/modeling_own.py").touch()
    assert main(["compress", "--base", "base", "--task", "chat=chat", "-o", "bundle"]) == 0
    assert "not stored: modeling_own.py" in capsys.readouterr().out
    bundle = tallmasks.load_bundle("bundle")
    assert main(["export", "bundle", "--task", "chat", "-o", "chat2"]) == 0
    again = transformers.LlamaForCausalLM.from_pretrained("chat2")
    assert files_of("chat").items() <= files_of("chat2").items()
    right = transformers.LlamaForCausalLM(task.config)
    right.load_state_dict(bundle.state_dict("chat", like=right))
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, right(ids).logits)
    assert again.generation_config.max_length == 77
    message = [{"role": "user", "content": "a"}]
    assert AutoTokenizer.from_pretrained("chat2").apply_chat_template(message, tokenize=False) == "<s>a</s>"
    kept = [name for name in bundle.manifest.files if name.startswith("companions/")]
    differing = [file for file in files_of("chat") if files_of("chat")[file] != files_of("base").get(file)]
    assert len(kept) == len(differing) > 2, "what the base has too is not stored"


def test_a_head_of_an_adapter_is_the_tasks_own() -> None:
    """PEFT's adapters of classifiers could not be compressed, or lost their heads."""
    made("ViTForImageClassification").vit.save_pretrained("base")
    module = "vit.encoder.layer.0.attention.attention.query"
    factors = {f"{module}.lora_A.weight": torch.ones(4, 16), f"{module}.lora_B.weight": torch.ones(16, 4)}
    heads = {"a": torch.randn(3, 16), "b": torch.randn(4, 16)}
    for name, head in heads.items():
        lora(Path(name), {**factors, "classifier.weight": head}, modules_to_save=["classifier"])
    tallmasks.compress("base", {"a": "a", "b": "b"}, "bundle")
    bundle = tallmasks.load_bundle("bundle")
    for name, head in heads.items():
        assert torch.equal(bundle.state_dict(name)["classifier.weight"], head)
        assert bundle.config(name)["model_type"] == "vit", "of the base"


@pytest.mark.parametrize("method", ["stochastic_rounding", "ties"])
def test_a_head_with_the_shape_of_the_bases_comes_back_whole(method: str) -> None:
    """A classifier over a base with as many classes had a noisy difference of its head on top of another head."""
    config = transformers.BertConfig(**SIZE, **WORDS, num_labels=70)
    base = transformers.BertForSequenceClassification(config)
    base.save_pretrained("base")
    tasks = {name: moved(base, seed) for seed, name in enumerate(TASKS, 1)}
    for name, task in tasks.items():
        torch.nn.init.normal_(task.classifier.weight)
        task.save_pretrained(name)
    tallmasks.compress("base", {name: name for name in tasks}, "bundle", method=method)
    bundle, live = tallmasks.load_bundle("bundle"), moved(base, 9)
    assert bundle.manifest.buffers.keys() == {"classifier.bias", "classifier.weight"}
    assert len(bundle.manifest.encoded) > 9
    for name, task in tasks.items():
        bundle.apply_(live, name)
        for state in (live.state_dict(), bundle.state_dict(name)):
            assert torch.equal(state["classifier.weight"], task.classifier.weight)


def test_other_models_are_refused_and_bundles_hold_no_code() -> None:
    """A model of another base would be stored whole, tensor by tensor; or a bundle bring code beside its models."""
    classifiers()
    made("Dinov2Model").save_pretrained("other")
    assert "more than half of" in refusal(lambda: tallmasks.compress("base", {"x": "other"}, "bundle"))
    tallmasks.compress("base", {"cars": "cars", "dtd": "dtd"}, "bundle")
    manifest = json.loads(Path("bundle/bundle.json").read_text())
    for name in ("modeling_own.py", "../config.json"):
        manifest["models"]["cars"]["companions"] = {name: "0" * 64}
        Path("bundle/bundle.json").write_text(json.dumps(manifest | {"digest": bundle_digest(manifest)}))
        assert "companions is" in refusal(lambda: tallmasks.load_bundle("bundle"))
