"""Models in which only some tensors change, or have odd shapes and copies: merged and compressed as files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tallmasks
from tallmasks.cli.main import main
from tallmasks.vectors import kernels

Tensors = dict[str, torch.Tensor]


def write(folder: Path, base: Tensors, tasks: dict[str, Tensors]) -> dict[str, str]:
    for name, tensors in {"base": base, **tasks}.items():
        save_file(tensors, folder / f"{name}.safetensors")
    return {task: str(folder / f"{task}.safetensors") for task in tasks}


def tuned(base: Tensors, seed: int, unchanged: str = "") -> Tensors:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: one if unchanged and unchanged in name else one + 0.01 * torch.randn(one.shape, generator=draw)
        for name, one in base.items()
    }


def test_blocks_that_no_task_changed_count_in_lines(tmp_path: Path) -> None:
    """The last trained block would get the scale of the model's last block."""
    base = {f"layers.{block}.w.weight": torch.randn(8, 8) for block in range(12)}
    frozen = {name: one for name, one in base.items() if int(name.split(".")[1]) > 5}
    tasks = {task: tuned(base, seed) | frozen for seed, task in enumerate("ab")}
    paths = write(tmp_path, base, tasks)
    tallmasks.merge_checkpoints(tmp_path / "base.safetensors", paths, tmp_path / "out.safetensors", method="lines")
    found = load_file(tmp_path / "out.safetensors")
    added = sum(one["layers.5.w.weight"] - base["layers.5.w.weight"] for one in tasks.values())
    scale = (found["layers.5.w.weight"] - base["layers.5.w.weight"]) / added
    np.testing.assert_allclose(scale, 1 / 2 + 0.5 * 5 / 11, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_stands_out_of_a_half_models_rounding_is_merged(dtype: torch.dtype, tmp_path: Path) -> None:
    """Directions that a task trained would be left out as rounding errors, or rounding errors scaled up to these."""
    draw = torch.Generator().manual_seed(0)
    matrix, base = torch.randn(2, 96, 80, generator=draw)
    error = torch.linalg.matrix_norm(matrix.to(dtype).float() - matrix, 2)
    left, right = (torch.linalg.qr(torch.randn(rows, 5, generator=draw)).Q for rows in (96, 80))
    tuned = base.to(dtype).float() + 3 * error * left @ right.T
    paths = write(tmp_path, {"w": base.to(dtype)}, {"a": {"w": tuned.to(dtype)}})
    out = tallmasks.merge_checkpoints(
        tmp_path / "base.safetensors", paths, tmp_path / "out.safetensors", method="iso_c", dtype="float32"
    )
    assert torch.linalg.matrix_rank(load_file(out)["w"] - base.to(dtype).float(), rtol=0.1) == 5


def test_every_value_of_a_long_tensor_counts(tmp_path: Path) -> None:
    """A change between two pieces of a tensor would be lost, or one in the base not be noticed."""
    places = [1 << 20, 1 << 21]
    base = {"w.weight": torch.ones(3, 699_051).bfloat16()}  # (1 << 21) + 1 values
    tasks = {str(place): {"w.weight": base["w.weight"].clone()} for place in places}
    for task in tasks:
        tasks[task]["w.weight"].view(-1)[int(task)] = 2
    paths, here = write(tmp_path, base, tasks), tmp_path / "base.safetensors"
    merged = tallmasks.merge_checkpoints(here, paths, tmp_path / "merged.safetensors", method="weight_averaging")
    assert (load_file(merged)["w.weight"].view(-1) > 1).nonzero()[:, 0].tolist() == places
    out = tallmasks.compress(here, paths, tmp_path / "bundle", method="lossless")
    bundle = tallmasks.load_bundle(out)
    for task, tensors in tasks.items():
        again = tmp_path / f"{task}-again.safetensors"
        assert main(["export", str(out), "--task", task, "-o", str(again)]) == 0
        assert torch.equal(bundle.state_dict(task)["w.weight"], tensors["w.weight"])
        assert torch.equal(load_file(again)["w.weight"], tensors["w.weight"])
        with pytest.raises(tallmasks.TallmasksError, match="the values of 1 of 1 tensors differ"):
            tallmasks.load_bundle(out, paths[task]).state_dict(task)


SETTINGS = {
    "compress": {"ties": {}, "tall_mask_dare": {"mask_lambda": {"a": 0.4}, "bits": 2}},
    "merge_checkpoints": {
        "ties": {"weight": {"a": 0.7}, "density": {"b": 0.4}, "trim": "tensor"},
        "dare_ties": {"weight": {"a": 0.7}, "normalize": False},
        "consensus_ties": {"weight": {"a": 0.7}, "mask_lambda": 0.3},
    },
}


@pytest.mark.parametrize(("function", "method"), [(one, method) for one, of in SETTINGS.items() for method in of])
def test_the_size_of_pieces_does_not_count(
    function: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor of more than 131,072 values would be merged or compressed differently from a smaller one."""
    base = {"layers.0.w.weight": torch.randn(350, 350), "layers.1.w.weight": torch.randn(40, 30)}
    paths = write(tmp_path, base, {task: tuned(base, seed) for seed, task in enumerate("ab")})
    found, settings = [], SETTINGS[function][method]
    for piece in (kernels.SLICE, 1 << 16):
        monkeypatch.setattr(kernels, "SLICE", piece)
        monkeypatch.setattr(kernels, "PARTITIONED", piece)
        (tmp_path / str(piece)).mkdir()
        out = tmp_path / str(piece) / ("out" if function == "compress" else "out.safetensors")
        getattr(tallmasks, function)(tmp_path / "base.safetensors", paths, method=method, out=out, **settings)
        files = [path for path in [out, *out.rglob("*")] if path.is_file() and path.name != "README.md"]
        found.append({path.name: path.read_bytes() for path in files})
    assert found[0] == found[1] and found[0]
