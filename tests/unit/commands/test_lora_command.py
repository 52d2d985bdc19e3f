"""`tallmasks lora`: a task vector as a PEFT folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from models_made import refusal, run
from tallmasks.commands.lora import low_rank_factors


def test_a_lora_is_the_nearest_of_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server of LoRAs would get another model than the fine-tuned one, without a word of how far off."""
    monkeypatch.chdir(tmp_path)
    draw = torch.Generator().manual_seed(0)
    base = {
        name: torch.randn(24, 16, generator=draw) for name in ("l.0.q.weight", "l.0.v.weight", "embed_tokens.weight")
    }
    low, full = (torch.randn(24, r, generator=draw) @ torch.randn(r, 16, generator=draw) for r in (3, 16))
    tuned = {**base, "l.0.q.weight": base["l.0.q.weight"] + low, "l.0.v.weight": base["l.0.v.weight"] + full}
    for name, tensors in (("base", base), ("tuned", tuned)):
        Path(name).mkdir()
        save_file(tensors, f"{name}/model.safetensors")
    assert run("lora", "--base", "base", "tuned", "--rank", 4, "-o", "adapter") == 0
    said = capsys.readouterr().out
    assert run("merge", "--base", "base", "--task", "a=adapter", "--method", "weight_averaging", "-o", "again") == 0
    again = load_file("again/model.safetensors")
    torch.testing.assert_close(again["l.0.q.weight"], tuned["l.0.q.weight"], rtol=1e-5, atol=1e-5)
    error = sum((again[name] - tuned[name]).square().sum() for name in base) ** 0.5
    expected = torch.linalg.svdvals(full)[4:].square().sum() ** 0.5
    assert error == pytest.approx(float(expected), rel=1e-4)
    relative = expected / (low.square().sum() + full.square().sum()) ** 0.5
    assert float(re.search(r"change ([\d.]+)%", said)[1]) == pytest.approx(100 * float(relative), abs=0.01)
    assert run("lora", "--base", "base", "tuned", "--rank", 4, "-o", "repeated") == 0
    assert all(Path("repeated", path.name).read_bytes() == path.read_bytes() for path in Path("adapter").iterdir())
    assert run("compress", "--base", "base", "--task", "a=tuned", "--mask-lambda", 0, "-o", "bundle") == 0
    assert run("lora", "--base", "base", "bundle#a", "--rank", 16, "-o", "of_bundle") == 0
    assert "relative error of the whole change 0.00%" in capsys.readouterr().out
    assert "no matrix of a layer differs" in refusal(capsys, "lora", "--base", "base", "base", "-o", "x")


@pytest.mark.parametrize("shape", [(300, 200), (200, 300), (40, 9)])
def test_factors_are_near_the_best_where_no_direction_stands_out(shape: tuple[int, int]) -> None:
    """The error printed would be another than that of the folder, or far above the least that the rank allows."""
    delta = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    b, a, length = low_rank_factors(delta, 12)
    assert b.shape == (shape[0], 12) and a.shape == (12, shape[1])
    lost = np.square(delta - b @ a, dtype=np.float64).sum()
    assert np.square(delta, dtype=np.float64).sum() - length == pytest.approx(lost, rel=1e-5, abs=1e-4)
    least = np.square(np.linalg.svd(delta, compute_uv=False)[12:], dtype=np.float64).sum()
    assert lost**0.5 <= 1.001 * least**0.5 + 1e-3
