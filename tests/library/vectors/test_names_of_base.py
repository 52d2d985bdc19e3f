"""Tensor names that transformers converts when it loads a file: models fit in whatever way they were saved."""

import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import tallmasks
from small_checkpoints import file_of, lora, refusal
from small_models import SIZE, WORDS, made, moved
from tallmasks.bundles.bundle_models import open_model
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksWarning
from tallmasks.vectors.checkpoints import known_tensors
from tallmasks.vectors.checkpoints.fitting import check_fit
from tallmasks.vectors.checkpoints.opening import open_checkpoint

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these


def saved(model, folder, how):
    """The folder of a model, saved in one of the common ways."""
    if how in ("file", "new names", "old names"):
        model.save_pretrained(folder, save_original_format=how != "new names")
        if how == "old names":
            old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
            old |= {f".parametrizations.weight.original{n}": f".weight_{letter}" for n, letter in enumerate("gv")}
            tensors = load_file(folder / "model.safetensors").items()
            ends = {name: next(filter(name.endswith, old), "") for name, _ in tensors}
            renamed = {name.removesuffix(ends[name]) + old.get(ends[name], ""): tensor for name, tensor in tensors}
            save_file(renamed, folder / "model.safetensors", {"format": "pt"})
        return folder
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    if how == "state":
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    elif how == "inner state":
        torch.save(model.base_model.state_dict(), folder / "pytorch_model.bin")
    else:
        save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    return folder


SAVED = [
    ("ViTForImageClassification", "state", "file"), ("Dinov2Model", "file", "new names"),
    ("BertForMaskedLM", "old names", "file"), ("Wav2Vec2ForCTC", "file", "old names"),
    ("GPT2LMHeadModel", "file", "inner state"),
    ("LlamaForCausalLM", "file", "copies"),
]  # fmt: skip
"""A class, and how its base and its fine-tuned model are saved."""


@pytest.mark.parametrize(("name", "of_base", "of_task"), SAVED)
def test_models_fit_however_they_are_saved(name, of_base, of_task, tmp_path, monkeypatch):
    """A base could not be merged with a model saved by another release of transformers, or by torch.save."""
    monkeypatch.chdir(tmp_path)
    base = made(name)
    task = moved(base)
    saved(base, tmp_path / "base", of_base)
    saved(task, tmp_path / "task", of_task)
    tallmasks.merge_checkpoints("base", {"a": "task"}, "merged", method="weight_averaging")
    tallmasks.compress("base", {"a": "task"}, "bundle", method="lossless")
    switched = type(base).from_pretrained("base")
    wrapped = torch.nn.ModuleDict({"module": switched})  # the names of DDP
    tallmasks.load_bundle("bundle").apply_(wrapped, "a")
    merged = type(base).from_pretrained("merged")
    for key, tensor in task.state_dict().items():
        assert torch.equal(merged.state_dict()[key], tensor), key
        assert torch.equal(switched.state_dict()[key], tensor), key
    assert open_checkpoint("merged").names == open_checkpoint("base").names


@pytest.mark.parametrize("module", ["encoder.layer.1.attention.v_proj", "dinov2.encoder.layer.1.attention.q_proj"])
def test_an_adapter_of_any_release_fits_the_file(module, tmp_path):
    """A DINOv2 adapter trained with transformers 5 was refused because of its tensor names."""
    base = made("Dinov2Model")
    saved(base, tmp_path / "base", "file")
    own = known_tensors.known_tensors([f"{module}.weight"], open_checkpoint(tmp_path / "base"))[
        f"{module}.weight"
    ].identity
    rows, columns = base.state_dict()[own].shape
    b, a = torch.arange(rows * 4.0).reshape(rows, 4), torch.arange(columns * 4.0).reshape(4, columns)
    lora(tmp_path / "lora", {f"{module}.lora_A.weight": a / 1024, f"{module}.lora_B.weight": b / 1024})
    tallmasks.merge_checkpoints(
        tmp_path / "base", {"a": tmp_path / "lora"}, tmp_path / "out", method="task_arithmetic", scaling_coefficient=1.0
    )
    merged = type(base).from_pretrained(tmp_path / "out").state_dict()
    for key, tensor in base.state_dict().items():
        torch.testing.assert_close(merged[key], tensor + 2 * (b @ a) / 1024**2 if key == own else tensor)


def test_norms_of_another_name_are_no_heads(tmp_path, monkeypatch):
    """With --heads, every LayerNorm of a BERT was treated as a head and not merged."""
    kind = transformers.BertForSequenceClassification
    models = {task: kind(transformers.BertConfig(**SIZE, **WORDS, num_labels=len(task))) for task in ("cars", "dtd")}
    base = open_checkpoint(saved(moved(models["cars"].bert, 9), tmp_path / "base", "old names"))
    for task, model in models.items():
        saved(moved(model), tmp_path / task, "state")
    words = ["--task", f"cars={tmp_path}/cars", "--task", f"dtd={tmp_path}/dtd", "--method", "weight_averaging"]
    assert main(["merge", "--base", str(tmp_path / "base"), *words, "--heads", "-o", str(tmp_path / "merged")]) == 0
    heads = load_file(tmp_path / "merged/heads/cars.safetensors")
    assert set(heads) == {"classifier.weight", "classifier.bias"}
    merged = open_checkpoint(tmp_path / "merged")
    tasks = [open_model(tmp_path / name, base) for name in ("cars", "dtd")]
    gamma = "encoder.layer.0.output.LayerNorm.gamma"
    assert merged.names == base.names and gamma in base.names
    np.testing.assert_array_equal(merged.float32(gamma), sum(task.float32(gamma) for task in tasks) / 2)
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it was not installed
    with pytest.warns(TallmasksWarning, match=r"pip install .*\[transformers\]"):
        open_model(tmp_path / "cars", base)


def test_files_say_what_is_tied(tmp_path):
    """A model would be refused because it stores a tied tensor under another name, or one of two be taken for both."""
    table, body = torch.arange(36.0).reshape(9, 4), {"body.weight": torch.ones(2, 2), "zero.bias": torch.zeros(4)}
    base = open_checkpoint(file_of(tmp_path / "base", {"embed.weight": table, **body}))
    task = {"lm_head.weight": table + 1, **body}
    task = open_model(file_of(tmp_path / "task", task, **{"embed.weight": "lm_head.weight"}), base)
    check_fit(base, {"task": task})
    np.testing.assert_array_equal(task.float32("embed.weight"), table + 1)
    tied = open_checkpoint(file_of(tmp_path / "tied", {"embed.weight": table, "lm_head.weight": table}, "tied.pt"))
    apart = open_checkpoint(file_of(tmp_path / "apart", {"embed.weight": table, "lm_head.weight": table + 1}))
    assert "lm_head.weight" in refusal(lambda: check_fit(tied, {"apart": apart}))
    both = file_of(tmp_path / "both", dict.fromkeys(("embed.weight", "lm_head.weight"), table + 1), "both.pt")
    one = file_of(tmp_path / "one", {"lm_head.weight": table + 1}, **{"embed.weight": "lm_head.weight"})
    tasks, names = {"both": both, "one": one}, ("embed.weight", "lm_head.weight")
    out = tallmasks.compress(tmp_path / "tied/tied.pt", tasks, tmp_path / "bundle", method="lossless")
    bundle = tallmasks.load_bundle(out)
    for task in tasks:
        for tensors in (bundle.arrays(task), bundle.state_dict(task), dict(bundle.named_tensors(task))):
            assert all((np.asarray(tensors[name]) == table.numpy() + 1).all() for name in names)
        assert bundle.update(task, "lm_head.weight").tolist() == [1.0] * 36


@pytest.mark.parametrize("wrapper", ["_orig_mod.", "_fsdp_wrapped_module."])
def test_names_and_files_of_trainers_are_read(wrapper, tmp_path):
    """Checkpoints of compiled or wrapped layers were refused, or had to be unpacked by hand."""
    base = made("GPTNeoXForCausalLM")
    plain, task = saved(base, tmp_path / "base", "state"), moved(base).state_dict()
    wrapped = {name.replace("layers.1.", f"layers.1.{wrapper}"): tensor for name, tensor in task.items()}
    torch.save({"module": wrapped, "optimizer": {"state": {0: torch.ones(2)}}}, tmp_path / "task.pt")
    opened = open_checkpoint(plain)
    found = open_model(tmp_path / "task.pt", opened)
    check_fit(opened, {"task": found})
    for name in opened.layout.names:
        np.testing.assert_array_equal(found.float32(name), task[name].numpy())


def test_an_interrupted_question_is_not_answered_by_the_next_answer(tmp_path, monkeypatch):
    """After Ctrl-C in a notebook, one model's settings would be taken for another's."""
    models = []
    for size in (16, 32):
        (folder := tmp_path / str(size)).mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": size}))
        save_file({"w": torch.zeros(1)}, folder / "model.safetensors")
        models.append(open_checkpoint(folder))

    def interrupted():
        raise KeyboardInterrupt

    process = known_tensors._process(os.getpid(), False)
    monkeypatch.setattr(process, "stdout", SimpleNamespace(readline=interrupted))
    with pytest.raises(KeyboardInterrupt):
        known_tensors.library_settings(models[0])
    assert [known_tensors.library_settings(one)["hidden_size"] for one in models[::-1]] == [32, 16]
    assert process.poll() is not None
