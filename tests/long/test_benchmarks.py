"""Benchmarks: memory of `merge` and `compress`, and those of the workflow's models run."""

import os
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from project import Project


def write_sparse(path: Path, shapes: dict[str, tuple[int, ...]], header: bytes, seed: int) -> None:
    """A bfloat16 model with noise at the beginning of each tensor; the rest is a hole in the file."""
    noise = np.random.default_rng(seed).standard_normal(1 << 16, np.float32).view(np.uint16)[1::2].tobytes()
    place = len(header)
    with path.open("wb") as file:
        file.write(header)
        for name in sorted(shapes):
            size = 2 * prod(shapes[name])
            file.seek(place)
            file.write(noise[:size])
            place += size
        file.truncate(place)


@pytest.mark.parametrize("words", [("merge", "--method", "ties"), ("compress", "--method", "ties"), ("compress",)])
def test_memory_does_not_grow_with_depth(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model would fit on a laptop as long as it has few layers: here a layer of a 7 B model is 0.4 GB."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from measured import cost_of
    from noise_checkpoints import header_of, llama

    peaks = []
    for layers in (1, 2):
        folder = tmp_path / str(layers)
        folder.mkdir()
        shapes = llama(layers)
        for seed, name in enumerate(("base", "a", "b")):
            write_sparse(folder / f"{name}.safetensors", shapes, header_of(shapes, "BF16"), seed)
        given = [f"--base={folder}/base.safetensors", *(f"--task={name}={folder}/{name}.safetensors" for name in "ab")]
        out = folder / "out.safetensors"
        command = [sys.executable, "-m", "tallmasks.cli.main", *words, *given, f"--output={out}"]
        peaks.append(cost_of(command, {"PYTHONPATH": str(ROOT / "src")}).anon_mib)
        shutil.rmtree(folder)
    assert min(peaks) > 20 and max(peaks) < 512
    assert abs(peaks[1] - peaks[0]) < 24


@pytest.mark.parametrize("script", ["default_method.py stored", "lora_ranks.py --ranks 2"])
def test_benchmarks_of_fine_tuned_models_run(script: str, project: Project) -> None:
    """The numbers of the pages could not be printed again."""
    words = [sys.executable, str(ROOT / "benchmarks" / script.split()[0]), *script.split()[1:]]
    at = len(words) if "stored" in words else 2
    words[at:at] = ["tiny", "two"]
    done = subprocess.run(
        words, cwd=project.path("."), env={**os.environ, "PYTHONPATH": str(project.path("src"))}, capture_output=True,
        text=True, timeout=600,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert "tiny,two" in done.stdout or "tiny,2," in done.stdout
