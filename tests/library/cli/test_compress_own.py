"""Bundles of the methods that compress each task by itself: TSV-C, BitDelta, T-Switch, from call to weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import tallmasks
from models_made import NAMED, TASKS, of_base_and_tasks, run, weights
from tallmasks import methods
from tallmasks.io.tensor_files import Layout

CALLS = {
    "tsv_c": ["--method", "tsv_c"],
    "bitdelta": ["--method", "bitdelta"],
    "t_switch:drop=0.3": ["--method", "t_switch", "--option", "drop=0.3"],
    "lloyd_max": ["--method", "lloyd_max"],
    "tvq:bits=4": ["--method", "tvq", "--bits", "4"],
}


def updates(folder: Path, spec: str, task: str) -> dict[str, np.ndarray]:
    """What the tables evaluate of a method: its function on the whole task vector."""
    base, tuned = of_base_and_tasks(folder)["base"], of_base_and_tasks(folder)[task]
    names = sorted(name for name in base if "embed" not in name)
    layout = Layout(tuple(names), tuple(base[name].shape for name in names))
    vector = layout.join({name: tuned[name] - base[name] for name in names})
    given = {"task_vector": vector, "layout": layout, "tasks": len(TASKS)}
    method = methods.get(spec)
    return layout.split(method(**{key: given[key] for key in method.needs}))


@pytest.mark.parametrize("spec", CALLS)
def test_every_task_comes_back(here: Path, tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle would give back another model than the one that the table has the accuracy of, or one on a GPU."""
    out = tmp_path / "bundle"
    assert run("compress", "--base", "base", *NAMED, *CALLS[spec], "--dry-run", "-o", out) == 0
    assert not out.exists()
    said = capsys.readouterr().out.splitlines()[-1]
    assert run("compress", "--base", "base", *NAMED, *CALLS[spec], "-o", out) == 0
    assert said in capsys.readouterr().out.splitlines()
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    bundle = tallmasks.load_bundle(out)
    assert bundle.manifest.method == spec and not (out / "merged.safetensors").exists()
    on_device = tallmasks.load_bundle(out, device="cpu")
    model, other = (LlamaForCausalLM.from_pretrained("base") for _ in range(2))
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
        on_device.apply_(other, task)
        for live in (model, other):
            assert all(torch.equal(p, state[name]) for name, p in live.named_parameters() if name in state)
        assert run("export", out, "--task", task, "-o", tmp_path / task) == 0
        assert all(torch.equal(p, state[name]) for name, p in weights(tmp_path / task).items() if name in state)
    bundle.restore_(model)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert run("verify", out) == 0
    capsys.readouterr()
    assert run("info", out) == 0
    told = capsys.readouterr().out
    assert all(task in told for task in TASKS) and spec in told
    assert f"bundle {size / 1000:.1f} kB; the 3 models take " in said and said.partition("+")[2][:16] in told
    assert f"{spec}, " in told
