"""What happens to each tensor of a merge or a bundle, and why, as the commands print it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tallmasks
from models_made import run
from tallmasks.operations.merge_settings import from_python
from tallmasks.operations.opened_models import open_models
from tallmasks.operations.tensor_roles import Role, tensor_roles
from tallmasks.vectors.checkpoints.opening import open_checkpoint

TASKS = {"cars": 3, "dtd": 2}
CALL = [word for task in TASKS for word in ("--task", f"{task}={task}.safetensors")]
CALL = ["--base", "base.safetensors", *CALL]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base and two tasks with a tensor of every role."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    base = {"body.weight": torch.randn(64, 64), "frozen.weight": torch.randn(8, 8), "head.weight": torch.ones(1, 8)}
    base |= {
        "norm.running_mean": torch.zeros(4),
        "norm.num_batches_tracked": torch.tensor(0),
        "kept.bias": torch.ones(4),
    }
    save_file(base, "base.safetensors")
    for number, (task, labels) in enumerate(TASKS.items(), 1):
        own = {"body.weight": base["body.weight"] + 0.1 * torch.randn(64, 64), "head.weight": torch.ones(labels, 8)}
        own |= {"norm.running_mean": torch.ones(4) * number, "norm.num_batches_tracked": torch.tensor(number)}
        save_file(base | own | {"kept.bias": torch.ones(4) + number}, f"{task}.safetensors")
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]


def test_a_merge_says_what_happens_to_each_tensor(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody would find out why a head or a statistic of the merged model is the base's."""
    Path("base").mkdir()
    Path("base.safetensors").rename("base/model.safetensors")
    call = ["merge", "--base", "base", *CALL[2:], "--method", "ties", "--heads", "--keep-base", "kept*"]
    assert run(*call, "--dry-run") == 0
    assert lines(capsys)[-6:] == [
        "merged: 1 tensor, 16.4 kB",
        "unchanged: 1 tensor, 256 bytes (no task changed them)",
        "averaged: 1 tensor, 16 bytes (running statistics or moving averages, which can be averaged over models):"
        " norm.running_mean",
        "each task's own, in heads/: 1 tensor, 32 bytes (of different shapes): head.weight",
        "the base's: 1 tensor, 16 bytes (--keep-base 'kept*'): kept.bias",
        "the base's: 1 tensor, 8 bytes (counters and flags): norm.num_batches_tracked",
    ]
    assert run(*call, "-o", "merged") == 0
    assert [line.partition(":")[0] for line in lines(capsys)[1:]] == [
        "averaged", "each task's own, in heads/", "the base's", "the base's"
    ]  # fmt: skip
    base, merged = load_file("base/model.safetensors"), load_file("merged/model.safetensors")
    same = {name for name in base if torch.equal(base[name], merged[name])}
    assert same == {"frozen.weight", "head.weight", "kept.bias", "norm.num_batches_tracked"}
    assert torch.equal(merged["norm.running_mean"], torch.full((4,), 1.5))


def test_a_bundle_says_what_happens_to_each_tensor(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A head or an embedding of another size makes a bundle large, and its owner would not know."""
    without = load_file("dtd.safetensors")
    del without["frozen.weight"]
    save_file(without | {"more.weight": torch.ones(2)}, "dtd.safetensors")
    assert run("compress", *CALL, "--keep-base", "kept*", "--dry-run") == 0
    statistics = "running statistics or moving averages, which can be averaged over models"
    expected = [
        "compressed: 1 tensor, 16.4 kB",
        f"each task's own: 1 tensor, 16 bytes ({statistics}): norm.running_mean",
        "each task's own: 1 tensor, 8 bytes (counters and flags): norm.num_batches_tracked",
        "only in the task: 1 tensor, 64 bytes (not in the base in this shape): head.weight",
        "only in the task: 1 tensor, 8 bytes (not in the base): more.weight",
        "only in the base: 1 tensor, 256 bytes (not in some tasks' models): frozen.weight",
    ]
    assert {line for line in lines(capsys) if ": 1 tensor, " in line} == {
        *expected,
        "the base's: 1 tensor, 16 bytes (--keep-base 'kept*'): kept.bias",
    }
    assert run("compress", *CALL, "--keep-base", "kept*", "-o", "bundle") == 0
    capsys.readouterr()
    assert run("info", "bundle") == 0
    assert {*expected, "unchanged: 1 tensor, 16 bytes"} <= set(lines(capsys))


def test_a_tensor_is_unchanged_if_it_is_in_every_task(models: Path) -> None:
    """Frozen layers would be stored for every task, or a change at a tensor's end would be lost."""
    long = torch.zeros((1 << 20) + 7)
    tensors = {"a.weight": torch.ones(7, 5), "b.weight": torch.ones(7, 5), "long.weight": long}
    save_file(tensors, "base.safetensors")
    save_file(tensors | {"a.weight": torch.zeros(7, 5)}, "cars.safetensors")
    late = long.clone()
    late[-1] = -0.0
    save_file(tensors | {"long.weight": late}, "dtd.safetensors")
    base, *tasks = (open_checkpoint(f"{name}.safetensors") for name in ("base", *TASKS))
    found = tensor_roles(base, dict(zip(TASKS, tasks, strict=True)), {})
    assert found.names(Role.UNCHANGED) == ("b.weight",)
    assert found.names(Role.MERGED) == ("a.weight", "long.weight")


def test_a_task_has_the_bases_values_where_its_tensor_has_another_shape(models: Path) -> None:
    """A task with a resized embedding would change the others' shared vector; or a threshold would count other
    weights."""
    torch.manual_seed(1)
    base = {
        "body.weight": torch.randn(64, 64),
        "table.weight": torch.randn(48, 64),
        "frozen.weight": torch.ones(40, 40),
    }
    base["own.bias"] = torch.ones(4)
    save_file(base, "base.safetensors")
    body = base["body.weight"] + 0.1 * torch.randn(64, 64)
    resized = base | {"body.weight": body, "table.weight": torch.randn(50, 64), "own.bias": torch.zeros(4)}
    moved = base | {"body.weight": 2 * body, "table.weight": base["table.weight"] + 0.1 * torch.randn(48, 64)}
    save_file(resized, "cars.safetensors")
    save_file(moved, "dtd.safetensors")
    paths = {task: f"{task}.safetensors" for task in TASKS}
    settings = from_python("base.safetensors", paths, "bundle", method="ties")
    opened = open_models(settings, for_bundle=True)
    with opened.progress("", 1) as progress:
        stream = opened.stream(progress)
    assert stream.layout.names == ("body.weight", "table.weight") and stream.frozen == 40 * 40 + 4
    assert not stream.changes["cars"]("table.weight", 0, 48 * 64).any()
    change = stream.changes["dtd"]("table.weight", 0, 48 * 64)
    torch.testing.assert_close(torch.from_numpy(change).view(48, 64), moved["table.weight"] - base["table.weight"])
    assert run("compress", *CALL, "--method", "lossless", "-o", "bundle") == 0
    for task, model in (("cars", resized), ("dtd", moved)):
        restored = tallmasks.load_bundle("bundle").state_dict(task)
        assert restored.keys() == model.keys() and all(torch.equal(restored[name], model[name]) for name in model)
