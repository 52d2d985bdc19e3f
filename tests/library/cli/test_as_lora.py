"""`--as-lora`: a merged model or a task of a bundle as a PEFT LoRA. tests/long/test_merge_llms.py loads some."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import tallmasks
from models_made import refusal, run
from small_checkpoints import lora
from small_models import IMAGES, SIZE, made, moved
from tallmasks.operations import as_lora
from tallmasks.operations.opened_models import Models
from tallmasks.vectors.checkpoints.lora_writing import planned_adapter
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.low_rank import squared_norm, truncated_svd

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these

ONE = ("merge", "--base", "base", "--method", "task_arithmetic", "--scaling-coefficient", "1")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def values(folder: str) -> dict[str, np.ndarray]:
    checkpoint = open_checkpoint(folder)
    return {name: checkpoint.float32(name) for name in checkpoint.tensors}


def adapter(folder: str = "lora") -> dict[str, np.ndarray]:
    """The tensors of an adapter, without peft's prefix."""
    tensors = load_file(f"{folder}/adapter_model.safetensors")
    return {name.removeprefix("base_model.model."): values for name, values in tensors.items()}


def config(folder: str = "lora") -> dict:
    return json.loads(Path(folder, "adapter_config.json").read_text())


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(module: str, rows: int, columns: int, rank: int, seed: int) -> dict[str, torch.Tensor]:
    a, b = drawn(rank, columns, seed=seed), drawn(rows, rank, seed=seed + 1)
    return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}


@pytest.mark.parametrize(
    ("words", "scales"),
    [
        (("task_arithmetic", "--scaling-coefficient", "0.7", "--weight", "a=0.5", "--weight", "b=-2"), (0.35, -1.4)),
        (("weight_averaging", "--weight", "a=3", "--weight", "b=1"), (0.75, 0.25)),
        (("weight_averaging",), (0.5, 0.5)),
    ],
)
def test_a_sum_of_loras_is_exact(words: tuple, scales: tuple, capsys: pytest.CaptureFixture[str]) -> None:
    """Some LoRA would count at another strength, as with other tools, or the sum lose its smaller directions."""
    made("GPT2LMHeadModel").save_pretrained("base")
    attention, mlp = "transformer.h.0.attn.c_attn", "transformer.h.0.mlp.c_fc"
    both = pair(attention, 48, 16, 4, 0) | pair(mlp, 64, 16, 4, 2)
    lora(Path("a"), both, fan_in_fan_out=True, r=4, lora_alpha=6, alpha_pattern={"c_fc": 2})
    of_b = pair(attention, 48, 16, 3, 4)
    lora(Path("b"), of_b, fan_in_fan_out=True, r=3, lora_alpha=2, use_rslora=True)
    call = ("merge", "--base", "base", "--task", "a=a", "--task", "b=b", "--method", *words)
    assert run(*call, "-o", "whole") == 0
    assert run(*call, "-o", "lora", "--as-lora", 8) == 0
    assert "rank 7" in (said := capsys.readouterr().out) and "exact: the change is a sum of LoRAs" in said
    assert config()["r"] == config()["lora_alpha"] == 7 and config()["fan_in_fan_out"]
    assert config()["target_modules"] == ["c_attn", "c_fc"] and not config()["modules_to_save"]
    tensors = adapter()
    expected = scales[0] * 6 / 4 * both[f"{attention}.lora_B.weight"] @ both[f"{attention}.lora_A.weight"]
    expected += scales[1] * 2 / np.sqrt(3) * of_b[f"{attention}.lora_B.weight"] @ of_b[f"{attention}.lora_A.weight"]
    product = tensors[f"{attention}.lora_B.weight"] @ tensors[f"{attention}.lora_A.weight"]
    np.testing.assert_allclose(product, expected, atol=1e-5)
    assert run(*ONE, "--task", "x=lora", "-o", "again") == 0
    base, whole, again = values("base"), values("whole"), values("again")
    for name in whole:
        np.testing.assert_allclose(again[name], whole[name], atol=1e-5, err_msg=name)
    assert {name for name in whole if (whole[name] != base[name]).any()} == {f"{attention}.weight", f"{mlp}.weight"}
    assert run("merge", "lora/merge.yaml", "-o", "lora-2") == 0
    capsys.readouterr()
    for name in ("adapter_model.safetensors", "adapter_config.json", "README.md"):
        assert Path("lora-2", name).read_bytes() == Path("lora", name).read_bytes()


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel", "T5ForConditionalGeneration", "LlamaForCausalLM", "BertForMaskedLM"]
)
def test_other_changes_are_cut_to_the_rank(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The adapter would be another model, or a tensor be missing from it in silence."""
    base = made(name)
    base.save_pretrained("base")
    moved(base).save_pretrained("task")
    assert run(*ONE, "--task", "x=task", "-o", "lora", "--as-lora", 3) == 0
    said = capsys.readouterr().out
    assert run(*ONE, "--task", "x=lora", "-o", "again") == 0
    before, after, again = values("base"), values("task"), values("again")
    modules = {key.split(".lora_")[0] for key in adapter() if ".lora_" in key}
    types = {path: type(module).__name__ for path, module in base.named_modules()}
    assert {types[path] for path in modules} <= {"Linear", "Conv1D", "Embedding"}
    kept = total = 0.0
    whole = {f"{module}.{part}" for module in config()["modules_to_save"] or () for part in ("weight", "bias")}
    for key, values_before in before.items():
        change, expected = after[key] - values_before, 0.0
        if key in whole:
            expected = change
        elif key.removesuffix(".weight") in modules:
            left, singular, right = np.linalg.svd(change, full_matrices=False)
            expected = left[:, :3] * singular[:3] @ right[:3]
        np.testing.assert_allclose(again[key], values_before + expected, atol=1e-5, err_msg=key)
        if key not in whole:
            total, kept = total + np.square(change).sum(), kept + np.square(expected).sum()
    assert f"squared norm: {kept / total:.1%};" in said and kept / total < 0.99
    lost = [key for key in before if key not in whole and key.removesuffix(".weight") not in modules]
    largest = max(lost, key=lambda key: float(np.square(after[key] - before[key]).sum()))
    share = np.square(after[largest] - before[largest]).sum() / total
    assert f"not stored, with the share of each: {largest} ({share:.2%})" in said
    card = Path("lora/README.md").read_text()
    assert f'{name}.from_pretrained("./base"), "<this folder>")' in card and f"{kept / total:.1%}" in card


def test_a_large_matrix_keeps_as_much_as_the_best_product() -> None:
    """The adapter of a large model would lose more than the user was told, or than it has to."""
    draw = np.random.default_rng(0)
    left, right = (np.linalg.qr(draw.standard_normal((size, 240)))[0] for size in (400, 300))
    spectrum = np.arange(1.0, 241) ** -0.5
    matrix = np.float32(left * spectrum @ right.T)
    a, b, kept = truncated_svd(matrix, 8)
    assert a.shape == (400, 8) and b.shape == (8, 300)
    assert kept > 0.999 * np.square(spectrum[:8]).sum()
    assert squared_norm(matrix) - kept == pytest.approx(squared_norm(matrix - a @ b), rel=1e-4)


def test_the_head_of_a_task_is_in_its_lora() -> None:
    """A classifier of a bundle, or of a base without a head, would come out without its head or its class names."""
    base = made("ViTForImageClassification").vit
    base.save_pretrained("base")
    labels = dict(enumerate(["cat", "dog", "cow"]))
    settings = transformers.ViTConfig(**SIZE, **IMAGES, id2label=labels, label2id={v: k for k, v in labels.items()})
    task = transformers.ViTForImageClassification(settings)
    task.vit.load_state_dict(base.state_dict())
    task = moved(task)
    task.save_pretrained("task")
    assert run(*ONE, "--task", "pets=task", "--heads", "-o", "lora", "--as-lora", 16) == 0
    tallmasks.compress("base", {"pets": "task"}, "bundle", method="lossless")
    assert run("export", "bundle", "--task", "pets", "-o", "lora-2", "--as-lora", 16) == 0
    assert run("export", "bundle", "--all", "-o", "all", "--as-lora", 2) == 0
    layers = {path for path, one in task.named_modules() if isinstance(one, torch.nn.Linear)} - {"classifier"}
    for folder in ("lora", "lora-2", "all/pets"):
        tensors = adapter(folder)
        assert {key.split(".lora_")[0] for key in tensors if ".lora_" in key} == layers
        np.testing.assert_array_equal(tensors["classifier.weight"], task.classifier.weight.detach())
        np.testing.assert_array_equal(tensors["classifier.bias"], task.classifier.bias.detach())
        assert config(folder)["modules_to_save"] == ["classifier"]
        assert transformers.AutoConfig.from_pretrained(folder).id2label == labels
    for layer in layers:  # full rank
        change = task.get_submodule(layer).weight - base.get_submodule(layer.removeprefix("vit.")).weight
        for tensors in (adapter("lora"), adapter("lora-2")):
            product = tensors[f"{layer}.lora_B.weight"] @ tensors[f"{layer}.lora_A.weight"]
            np.testing.assert_allclose(product, change.detach(), atol=1e-5)


def test_the_files_of_a_task_come_with_its_lora(capsys: pytest.CaptureFixture[str]) -> None:
    """Classes would be swapped, images scaled and texts ended as by the base, or texts split by an empty tokenizer."""
    base = made("ViTForImageClassification")

    def save(folder: str, names: list[str], seed: int, **more: object) -> None:
        model = moved(base, seed) if seed else base
        model.config.id2label, model.config.label2id = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
        model.config.update(more)
        model.save_pretrained(folder)
        Path(folder, "preprocessor_config.json").write_text(json.dumps({"image_mean": [seed > 0]}))
        Path(folder, "generation_config.json").write_text(json.dumps({"eos_token_id": int(seed > 0)}))
        Path(folder, "tokenizer.json").write_text("{}")

    save("base", ["no", "yes"], 0)
    save("a", ["yes", "no"], 1)
    save("c", ["no", "yes"], 2, use_cache=False)
    tallmasks.compress("base", {"a": "a", "c": "c"}, "bundle", method="lossless")
    assert run("export", "bundle", "--all", "-o", "all", "--as-lora", 4) == 0
    assert run(*ONE, "--task", "a=a", "--task", "c=c", "-o", "merged", "--as-lora", 4) == 0
    texts = capsys.readouterr()
    assert "a: config.json differs from the base's in id2label, label2id; the result keeps the base's" in texts.err
    # a config.json that only says how a model was trained keeps transformers from loading the LoRA with its base
    for folder, task, files in (
        ("all/a", "a", ["config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json"]),
        ("all/c", "c", ["generation_config.json", "preprocessor_config.json"]),
        ("merged", "a", ["generation_config.json", "preprocessor_config.json"]),
    ):
        found = {path.name for path in Path(folder).iterdir()} - {"README.md", "merge.yaml"}
        assert found == {"adapter_config.json", "adapter_model.safetensors", *files}, folder
        assert all(
            json.loads(Path(folder, name).read_text()) == json.loads(Path(task, name).read_text()) for name in files
        )
        assert f"in place of the base's: {', '.join(files)}" in texts.out
        card = Path(folder, "README.md").read_text()
        assert ("AutoConfig" in card) == ("config.json" in files) and "generation_config=GenerationConfig.from" in card


def test_a_lora_names_its_base_as_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT would not find the base from where the user is, or whoever gets the LoRA read the user's name."""
    base, home = made("ViTForImageClassification"), tmp_path / "users" / "tim"
    base.save_pretrained(home / "base")
    moved(base).save_pretrained(home / "task")
    tallmasks.compress(home / "base", {"x": home / "task"}, home / "bundle", method="lossless")
    of_merge = ("merge", "--base", home / "base", *ONE[3:], "--task", f"x={home}/task")
    for words in (of_merge, ("export", home / "bundle", "--task", "x")):
        for place, user, expected in (
            ("users", "else", "./tim/base"),
            ("users", "tim", "./base"),
            (home, "tim", "./base"),
        ):
            monkeypatch.chdir(tmp_path / place)
            monkeypatch.setenv("HOME", str(tmp_path / "users" / user))
            output = tmp_path / f"{words[0]}-{Path(place).name}-{user}"
            assert run(*words, "-o", output, "--as-lora", 2) == 0
            assert config(str(output))["base_model_name_or_path"] == expected
            assert f'from_pretrained("{expected}"' in (output / "README.md").read_text()


def test_it_says_where_the_heads_are(capsys: pytest.CaptureFixture[str]) -> None:
    """One would serve the LoRA of several classifiers with the base's head, or look for a file that is not there."""
    base = made("ViTForImageClassification")
    base.save_pretrained("base")
    for task, count in (("a", 3), ("b", 4)):
        model = transformers.ViTForImageClassification(transformers.ViTConfig(**SIZE, **IMAGES, num_labels=count))
        model.vit.load_state_dict(moved(base).vit.state_dict())
        model.save_pretrained(task)
    for tasks, where in ((["a=a"], "the task's own, in the LoRA"), (["a=a", "b=b"], "each task's own, in heads/")):
        call = (*ONE, *(word for task in tasks for word in ("--task", task)), "--as-lora", 4, "--heads")
        for more in ("--dry-run", ("-o", where[:4])):
            assert run(*call, *([more] if isinstance(more, str) else more)) == 0
            assert f"{where}: 2 tensors" in capsys.readouterr().out
        card = Path(where[:4], "README.md").read_text()
        assert ("heads/b.safetensors" in card) == (len(tasks) > 1)
        assert ('model = PeftModel.from_pretrained(model, "<this folder>")' in card) == (len(tasks) > 1)


def test_new_tokens_are_in_the_lora(capsys: pytest.CaptureFixture[str]) -> None:
    """The adapter would have no rows for them, or come without the tokenizer and the size to load it with."""
    words = {word: row for row, word in enumerate(["[UNK]", *"abcdefg"])}

    def save(folder: str, model: transformers.PreTrainedModel, new: list[str]) -> None:
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "[UNK]")))
        tokenizer.add_tokens(new)
        tokenizer.save_pretrained(folder)
        model.resize_token_embeddings(8 + len(new), mean_resizing=False)
        model.save_pretrained(folder)

    for is_tied in (False, True):
        settings = transformers.LlamaConfig(**SIZE, vocab_size=8, tie_word_embeddings=is_tied)
        base = transformers.LlamaForCausalLM(settings)
        for folder, model, new in (
            ("base", base, []),
            ("a", moved(base), ["<a>"]),
            ("b", moved(base, 2), ["<b>", "<c>"]),
        ):
            save(folder, model, new)
        call = (
            "merge",
            "--base",
            "base",
            "--task",
            "a=a",
            "--task",
            "b=b",
            "--method",
            "ties",
            "--tokens",
            "union",
            "-o",
        )
        if is_tied:
            assert "model.embed_tokens.weight, tied" in refusal(capsys, *call, "other", "--as-lora", 4)
            continue
        assert run(*call, "whole") == run(*call, "lora", "--as-lora", 4) == 0
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            np.testing.assert_array_equal(adapter()[name], values("whole")[name])
        assert adapter()["lm_head.weight"].shape == (11, 16)
        assert config()["modules_to_save"] == ["lm_head", "model.embed_tokens"]
        for name in ("config.json", "tokenizer.json"):
            assert Path("lora", name).read_bytes() == Path("whole", name).read_bytes()


def test_a_lora_has_the_dtype_asked_for() -> None:
    """It would take twice the bytes, or not be read again."""
    base = made("LlamaForCausalLM")
    base.save_pretrained("base")
    moved(base).save_pretrained("task")
    call = (*ONE, "--task", "x=task", "--as-lora", 4)
    assert run(*call, "-o", "lora") == 0 and run(*call, "-o", "half", "--dtype", "bfloat16") == 0
    single, half = (open_checkpoint(name, open_checkpoint("base")) for name in ("lora", "half"))
    assert half.nbytes < 0.7 * single.nbytes
    name = "model.layers.0.mlp.up_proj.weight"
    np.testing.assert_allclose(half.float32(name), single.float32(name), atol=0.01)


def test_wrong_moves_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A user would get a traceback, or an adapter that changes nothing or cannot be loaded."""
    base = made("LlamaForCausalLM")
    base.save_pretrained("base")
    moved(base).save_pretrained("task")
    Path("full").mkdir()
    Path("full/file").touch()
    call = (*ONE, "--task", "x=task", "-o")
    for words, fact in (
        ((*call, "lora", "--as-lora", 0), "found the rank 0, expected at least 1"),
        ((*call, "lora", "--as-lora", "much"), "found 'much', expected a whole number"),
        ((*call, "full", "--as-lora", 2), "already exists"),
        ((*call, "lora", "--as-lora", 2, "--out-shard-size", "5GB"), "a LoRA is a single file"),
        (
            (*call, "lora", "--as-lora", 2, "--only", "*norm*"),
            "of no matrix of a linear layer, heads aside; expected one",
        ),
        ((*("1e39" if word == "1" else word for word in call), "lora", "--as-lora", 2), "finite numbers"),
    ):
        assert fact in refusal(capsys, *words)
    Path("base/config.json").unlink()
    assert "expected a folder or repository of a transformers model" in refusal(capsys, *call, "lora", "--as-lora", 2)
    file = ("merge", "--base", "base/model.safetensors", "--task", "x=task/model.safetensors", "--method", "ties")
    assert "of a transformers model" in refusal(capsys, *file, "-o", "lora", "--as-lora", 2)
    assert not Path("lora").exists()


def test_the_time_left_is_that_of_the_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge of seconds would be said to take ten minutes, because the import of transformers counts."""
    base, done = made("LlamaForCausalLM"), list[int | str]()
    base.save_pretrained("base")
    moved(base).save_pretrained("task")
    monkeypatch.setattr(as_lora, "planned_adapter", lambda *args: done.append("planned") or planned_adapter(*args))
    monkeypatch.setattr(Models, "progress", lambda *_: done.append("begun") or contextlib.nullcontext(done.append))
    assert run(*ONE, "--task", "x=task", "-o", "lora", "--as-lora", 2) == 0
    assert done[:2] == ["planned", "begun"] and sum(done[2:]) > 0


def test_a_dry_run_tells_the_size(capsys: pytest.CaptureFixture[str]) -> None:
    """The user would choose a rank without knowing what it costs."""
    base = made("LlamaForCausalLM")
    base.save_pretrained("base")
    moved(base).save_pretrained("task")
    assert run(*ONE, "--task", "x=task", "-o", "lora", "--as-lora", 2, "--dry-run") == 0
    (size,) = re.findall(r"write  lora: about (.*)", capsys.readouterr().out)
    assert run(*ONE, "--task", "x=task", "-o", "lora", "--as-lora", 2) == 0
    assert f"rank 2, {size}" in capsys.readouterr().out
