"""Buffers, which are floats and no weights, in the models of torch, transformers and timm: what the commands do with
them, compared with the library's own models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

import small_models
import tallmasks
from models_made import run
from tallmasks.vectors.checkpoints.buffers import Buffer, buffers_among

TASKS = ("cars", "dtd", "mnist")
CALL = ["--base", "base.safetensors", *(word for task in TASKS for word in ("--task", f"{task}={task}.safetensors"))]

IMAGE = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1]))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet": resnet,
    "spectral norm": lambda: nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), nn.Flatten()),
}


def fine_tuned(base: nn.Module, seed: int) -> nn.Module:
    """A copy whose weights moved, and whose buffers went through a forward in training and far away."""
    model = copy.deepcopy(base)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
        model.train()(IMAGE)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.mul_(0.3)
            elif name.endswith("running_mean"):
                buffer.add_(seed)
    return model.eval()


@pytest.fixture(params=MODELS)
def models(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, nn.Module]:
    """A base and three models, saved in the current folder."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    base = MODELS[request.param]().eval()
    models = {"base": base} | {task: fine_tuned(base, seed) for seed, task in enumerate(TASKS, 1)}
    for name, model in models.items():
        save_model(model, f"{name}.safetensors")
    return models


def test_what_a_library_registers_as_a_buffer_is_one(models: dict[str, nn.Module]) -> None:
    """A running statistic would be merged like a weight; or a weight would stay the base's for its name's sake."""
    model = models["base"]
    found = buffers_among({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    floats = {name for name, tensor in model.named_buffers() if tensor.is_floating_point()}
    assert floats <= found.keys() <= dict(model.named_buffers()).keys()


WEIGHTS: dict[str, tuple[int, ...]] = {
    "h.0.attn.bias": (12,), "logit_scale": (), "pos_embed": (1, 9, 4), "conv.weight_g": (4, 1, 1),
    "conv.weight_v": (4, 3, 3), "embed": (9, 4), "ema.conv.weight": (3, 3), "weight_u": (4,), "mean": (3,),
    "block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 4), "blocks.0.attn.bias": (1, 1, 8, 4),
}  # fmt: skip
BUFFERS: dict[str, tuple[tuple[int, ...], Buffer]] = {
    "h.0.attn.bias": ((1, 1, 8, 8), Buffer.CONSTANT), "gpt_neox.layers.0.attention.masked_bias": ((), Buffer.CONSTANT),
    "layers.0.self_attn.rotary_emb.inv_freq": ((4,), Buffer.CONSTANT), "bn.num_batches_tracked": ((), Buffer.COUNTER),
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": ((32, 4), Buffer.CONSTANT),
    "model_ema.decoder.weight": ((3, 3), Buffer.AVERAGE), "queue": ((4, 8), Buffer.CONSTANT),
    "mlp.gate.e_score_correction_bias": ((8,), Buffer.AVERAGE), "bn.moving_variance": ((8,), Buffer.AVERAGE),
}  # fmt: skip


def test_names_are_told_apart_by_shape_and_neighbour() -> None:
    """A learned bias of GPT-2 would be taken for its mask, or the vectors of weight norm for those of spectral norm."""
    assert buffers_among(WEIGHTS) == {}
    assert all(buffers_among({name: shape}) == {name: kind} for name, (shape, kind) in BUFFERS.items())


@pytest.mark.parametrize("method", ["stochastic_rounding", "ties"])
def test_a_bundle_keeps_each_tasks_own_buffers(models: dict[str, nn.Module], method: str) -> None:
    """A variance of -0.8: the model answers NaN; or with another task's statistics."""
    assert run("compress", *CALL, "--method", method, "-o", "bundle") == 0
    bundle = tallmasks.load_bundle("bundle")
    exported, live, copied = (copy.deepcopy(models["base"]) for _ in range(3))
    for task in TASKS:
        assert run("export", "bundle", "--task", task, "-o", f"{task}-again.safetensors") == 0
    Path("base.safetensors").rename("moved.safetensors")
    without_files = tallmasks.load_bundle("bundle", device="cpu")
    for task in TASKS:
        load_model(exported, f"{task}-again.safetensors")
        bundle.apply_(live, task)
        without_files.apply_(copied, task)
        own = dict(models[task].named_buffers())
        for model in (exported, live, copied):
            assert all(torch.equal(buffer, own[name]) for name, buffer in model.named_buffers())
        assert torch.equal(live(IMAGE)[0], exported(IMAGE)[0])
    bundle.restore_(live)
    assert all(torch.equal(tensor, live.state_dict()[name]) for name, tensor in models["base"].state_dict().items())


def test_a_merge_averages_statistics_and_keeps_the_rest(models: dict[str, nn.Module]) -> None:
    """A merged variance would be below 0, or a mask the sum of masks."""
    assert run("merge", *CALL, "--method", "task_arithmetic", "--weight", "1", "-o", "merged.safetensors") == 0
    states = {name: model.state_dict() for name, model in models.items()}
    kinds = buffers_among({name: tuple(tensor.shape) for name, tensor in states["base"].items()})
    for name, tensor in load_file("merged.safetensors").items():
        base, every = states["base"][name], torch.stack([states[task][name] for task in TASKS])
        if kinds.get(name) is Buffer.AVERAGE:
            torch.testing.assert_close(tensor, every.double().mean(0).to(tensor.dtype), rtol=0, atol=0)
        elif name in kinds or not tensor.is_floating_point():
            assert torch.equal(tensor, base), name
        else:
            torch.testing.assert_close(tensor, base + (every - base).sum(0))


@pytest.mark.parametrize("method", ["stochastic_rounding", "ties"])
def test_small_tensors_of_unknown_models_come_back_whole_or_are_warned_of(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The standard deviation of a robot's actions came back 96 % too small, or was merged to one below 0."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    matrix, models = torch.randn(64, 40), {}
    for number, name in enumerate(("base", *TASKS)):
        models[name] = {
            "policy.weight": matrix + 0.01 * number * torch.randn(64, 40),
            "inputs.image.std": 0.05 + torch.rand(3, 1, 1) * (number == 0),
            "outputs.action.covariance": torch.randn(14, 14),
            "episodes": torch.tensor([1000.0 * number + 7]),
        }
        save_file(models[name], f"{name}.safetensors")
    assert run("compress", *CALL, "--method", method, "-o", "bundle") == 0
    assert "each task's own: 3 tensors, 800 bytes (vectors and small tensors): episodes" in capsys.readouterr().out
    bundle = tallmasks.load_bundle("bundle")
    assert list(bundle.manifest.encoded) == ["policy.weight"]
    for task in TASKS:
        state = bundle.state_dict(task)
        assert all(torch.equal(models[task][name], state[name]) for name in state if name != "policy.weight")
    assert run("merge", *CALL, "--method", "task_arithmetic", "--weight", "1", "-o", "merged.safetensors") == 0
    error = capsys.readouterr().err
    assert "episodes (whole numbers)" in error and "inputs.image.std (never negative)" in error


def test_what_the_models_class_ignores_may_be_in_some_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hub's base could not be merged or compressed with models that today's transformers saved."""
    monkeypatch.chdir(tmp_path)
    model = small_models.made("GPT2LMHeadModel")
    for name, one in {"base": model, "cars": small_models.moved(model)}.items():
        one.save_pretrained(name)
    of_old_file = {"transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16)}
    save_file(load_file("base/model.safetensors") | of_old_file, "base/model.safetensors", {"format": "pt"})
    words = ["--base", "base", "--task", "cars=./cars"]
    assert run("compress", *words, "--method", "lossless", "-o", "bundle") == 0
    assert run("merge", *words, "--method", "ties", "-o", "merged") == 0
    assert capsys.readouterr().out.count("transformer.h.0.attn.bias") == 2
    assert load_file("merged/model.safetensors").keys() == load_file("base/model.safetensors").keys()
    state, cars = tallmasks.load_bundle("bundle").state_dict("cars"), load_file("cars/model.safetensors")
    assert all(torch.equal(state[name], tensor) for name, tensor in cars.items())


def test_compress_keeps_what_one_model_has_or_the_bases_where_told(small: Path) -> None:
    """A head or a statistic of one model only was lost, or could not be left out."""
    more = {"head.weight": torch.ones(2, 8), "bn.running_mean": torch.ones(2)}
    save_file(load_file("cars/model.safetensors") | more, "cars/model.safetensors")
    of_base = {"embed": torch.ones(3), "old.running_var": torch.ones(2), "old.num_batches_tracked": torch.tensor(9)}
    save_file(load_file("base/model.safetensors") | of_base, "base/model.safetensors")
    words = ["compress", "--base", "base", "--task", "cars=./cars", "-o", "bundle"]
    assert run(*words[:-1], "whole") == 0
    whole, cars = tallmasks.load_bundle("whole"), load_file("cars/model.safetensors")
    assert whole.manifest.model("cars").missing == ("embed", "old.running_var")
    assert {*whole.state_dict("cars")} == {*cars, "old.num_batches_tracked"}  # a counter does not matter
    assert all(torch.equal(whole.state_dict("cars")[name], cars[name]) for name in more)
    assert run(*words, "--keep-base", "embed", "--keep-base", "head*", "--keep-base", "bn*") == 0
    state = tallmasks.load_bundle("bundle").state_dict("cars")
    assert torch.equal(state["embed"], torch.ones(3)) and torch.equal(state["w.weight"], cars["w.weight"])


def test_running_statistics_follow_the_weights(small: Path) -> None:
    """A mean of weight 1 and 0 would not be the first model, but have statistics of both."""
    of_norm = {"bn.weight": torch.ones(2), "bn.running_var": torch.ones(2)}
    state = load_file("base/model.safetensors")
    for name, factor in (("base", 1.0), ("one", 2.0), ("two", 9.0)):
        weights = {key: values * factor if values.is_floating_point() else values for key, values in state.items()}
        save_file(weights | {key: values * factor for key, values in of_norm.items()}, f"{name}.safetensors")
    tasks = {"one": "one.safetensors", "two": "two.safetensors"}
    tallmasks.merge_checkpoints(
        "base.safetensors", tasks, "merged.safetensors", method="weight_averaging", weight={"one": 1, "two": 0}
    )
    merged, one = load_file("merged.safetensors"), load_file("one.safetensors")
    assert all(torch.allclose(merged[name], one[name]) for name in one if one[name].is_floating_point())
