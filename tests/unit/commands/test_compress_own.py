"""Bundles of the methods that compress each task by itself: TSV-C, BitDelta, T-Switch, from call to weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import tallmasks
from commands.models_made import NAMED, TASKS, refusal, run
from tallmasks import methods
from tallmasks.store.tensor_files import Layout

CALLS = {
    "tsv_c": ["--method", "tsv_c"],
    "bitdelta": ["--method", "bitdelta"],
    "t_switch:drop=0.3": ["--method", "t_switch", "--option", "drop=0.3"],
}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in LlamaForCausalLM.from_pretrained(folder).named_parameters()}


def updates(folder: Path, spec: str, task: str) -> dict[str, np.ndarray]:
    """What the tables evaluate of a method: its function on the whole task vector."""
    base, tuned = weights(folder / "base"), weights(folder / task)
    names = sorted(name for name in base if "embed" not in name)
    layout = Layout(tuple(names), tuple(tuple(base[name].shape) for name in names))
    vector = layout.join({name: (tuned[name].float() - base[name].float()).numpy() for name in names})
    given = {"task_vector": vector, "layout": layout, "tasks": len(TASKS)}
    method = methods.get(spec)
    return layout.split(method(**{key: given[key] for key in method.needs}))


@pytest.mark.parametrize("spec", CALLS)
def test_every_task_comes_back(here: Path, tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle would give back another model than the one that the table has the accuracy of."""
    out = tmp_path / "bundle"
    assert run("compress", "--base", "base", *NAMED, *CALLS[spec], "--dry-run", "-o", out) == 0
    assert not out.exists()
    said = capsys.readouterr().out.splitlines()[-1]
    assert run("compress", "--base", "base", *NAMED, *CALLS[spec], "-o", out) == 0
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file() and path.name != "README.md")
    bundle = tallmasks.load_bundle(out)
    assert bundle.manifest.method == spec and not (out / "merged.safetensors").exists()
    model = LlamaForCausalLM.from_pretrained("base")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for task in TASKS:
        state = bundle.state_dict(task)
        for name, update in updates(here, spec, task).items():
            found = bundle.update(task, name).reshape(update.shape)
            if spec == "tsv_c":  # the factors are stored in float32, and multiplied in it
                np.testing.assert_allclose(found, update, rtol=1e-5, atol=1e-6 * abs(update).max())
            else:
                np.testing.assert_array_equal(found, update)
            weight = (before[name].float() + torch.from_numpy(found)).to(torch.bfloat16)
            assert torch.equal(state[name], weight)
        bundle.apply_(model, task)
        assert all(torch.equal(p, state[name]) for name, p in model.named_parameters() if name in state)
        assert run("export", out, "--task", task, "-o", tmp_path / task) == 0
        assert all(torch.equal(p, state[name]) for name, p in weights(tmp_path / task).items() if name in state)
    bundle.restore_(model)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert run("verify", out) == 0
    capsys.readouterr()
    assert run("info", out) == 0
    told = capsys.readouterr().out
    assert all(task in told for task in TASKS) and spec in told
    assert said.endswith(f"about {size / 1000:.1f} kB") and f"{spec}, " in told


def test_on_another_device_the_weights_are_the_same(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model on a GPU would get other weights than one in memory."""
    from tallmasks.bundles import live_weights

    assert run("compress", "--base", "base", *NAMED, *CALLS["bitdelta"], "-o", tmp_path / "bundle") == 0
    bundle, model = tallmasks.load_bundle(tmp_path / "bundle"), LlamaForCausalLM.from_pretrained("base")
    monkeypatch.setattr(live_weights, "on_cpu", lambda tensor: False)
    bundle.apply_(model, "dtd")
    state = bundle.state_dict("dtd")
    assert all(torch.equal(p, state[name]) for name, p in model.named_parameters() if name in state)


@pytest.mark.parametrize("method", ["ties", "t_switch"])
def test_entropy_coding_takes_less_and_changes_nothing(
    here: Path, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other models would come out of the smaller bundle, or it would not be said how much smaller it is."""
    words = ["--base", "base", *NAMED, "--method", method]
    assert run("compress", *words, "-o", tmp_path / "plain") == 0
    assert run("compress", *words, "--entropy-coding", "-o", tmp_path / "coded") == 0
    plain, coded = (tallmasks.load_bundle(tmp_path / name) for name in ("plain", "coded"))
    assert coded.manifest.uncoded == {name: part.size for name, part in plain.manifest.files.items()}
    assert sum(part.size for part in coded.manifest.files.values()) < sum(coded.manifest.uncoded.values())
    for task in TASKS:
        right, found = plain.state_dict(task), coded.state_dict(task)
        assert all(torch.equal(found[name], tensor) for name, tensor in right.items())
    capsys.readouterr()
    assert run("verify", tmp_path / "coded") == run("info", tmp_path / "coded") == 0
    size = sum(part.size for part in coded.manifest.files.values())
    assert f"entropy-coded: {size / 1000:.1f} kB of" in capsys.readouterr().out


def test_what_means_nothing_is_refused(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A setting would be taken and not be followed."""
    for words, expected in (
        (["--fit"], "bitdelta has no masks"),
        (["--mask-lambda", "0.3"], "bitdelta has no masks"),
        (["--dtype", "bfloat16"], "bitdelta has no merged vector"),
        (["--option", "drop=0.3"], "no option 'drop'"),
    ):
        said = refusal(
            capsys, "compress", "--base", "base", *NAMED, "--method", "bitdelta", *words, "-o", tmp_path / "x"
        )
        assert expected in said and not (tmp_path / "x").exists()


def test_a_damaged_file_costs_its_own_task_alone(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped sign would be another model; or one damaged file the loss of all tasks."""
    out = tmp_path / "bundle"
    assert run("compress", "--base", "base", *NAMED, "--method", "t_switch", "--include-base", "-o", out) == 0
    assert json.loads((out / "bundle.json").read_text())["format"] == "tallmasks/bundle/2"
    file = out / "updates" / "dtd.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    assert run("verify", out) == 1
    assert "updates/dtd.safetensors has sha256" in capsys.readouterr().out
    assert "updates/dtd.safetensors" in refusal(capsys, "export", out, "--task", "dtd", "-o", tmp_path / "dtd")
    assert run("export", out, "--task", "cars", "-o", tmp_path / "cars") == 0
