"""The benchmarks of record run, at a size of seconds, and what they say of memory holds; no time is looked at."""

import csv
import os
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT

KINDS = (("base", "", "base"), ("task", "a=", "a"), ("task", "b=", "b"))


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, f"benchmarks/{name}.py", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_benchmark_of_merging_on_disk_runs(tmp_path: Path) -> None:
    """The published numbers could not be measured again, and nobody would see it before the next release."""
    out, place = tmp_path / "out", tmp_path / "files"
    options = ["--scale", "0.0001", "--repeats", "1", "--out", str(out), "--place", str(place), "--only", "vit_b32:2"]
    options += ["--array-parameters", "20000000", "--commands", "merge consensus_ties", "--array-tasks", "2"]
    assert "1 of 12 layers" in run("streaming", *options).stderr  # what is left out is said
    measured = rows(out / "streaming.csv")
    on_files = [row for row in measured if row["shape"].startswith("vit_b32")]
    assert {"start-up", "merge consensus_ties", "export"} <= {row["what"] for row in on_files}
    assert all(float(row["read_gb"]) > 0 for row in on_files)
    assert "arrays" in {row["shape"] for row in measured} and not list(place.iterdir())


def write_sparse(path: Path, shapes: dict[str, tuple[int, ...]], header: bytes, seed: int) -> None:
    """A model in bfloat16 of which only the beginning of each tensor takes room on the disk: the rest is 0."""
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


@pytest.mark.parametrize(
    "words", [("merge", "--method", "ties"), ("compress", "--method", "ties", "--dtype", "bfloat16")]
)
def test_memory_does_not_grow_with_depth(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model would fit on a laptop as long as it has few layers: here a layer of a 7 B model is 0.4 GB."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from measured import cost_of
    from model_shapes import header_of, llama

    peaks = []
    for layers in (1, 2):
        folder = tmp_path / str(layers)
        folder.mkdir()
        shapes = llama(layers)
        for seed, name in enumerate(("base", "a", "b")):
            write_sparse(folder / f"{name}.safetensors", shapes, header_of(shapes, "BF16"), seed)
        given = [f"--{kind}={value}{folder / name}.safetensors" for kind, value, name in KINDS]
        out = folder / "out.safetensors"
        command = [sys.executable, "-m", "tallmasks.commands.main", *words, *given, f"--output={out}"]
        peaks.append(cost_of(command, {"PYTHONPATH": str(ROOT / "src")}).anon_mib)
        shutil.rmtree(folder)
    assert min(peaks) > 20 and max(peaks) < 512
    assert abs(peaks[1] - peaks[0]) < 24


@pytest.mark.short
def test_the_benchmarks_of_merges_and_of_switching_run_and_write_no_document(tmp_path: Path) -> None:
    """What the documents say of their time could not be measured again; or a try on a laptop would replace it."""
    planned = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert planned.count("--out results/benchmarks") == 2 and "docs" not in planned
    options = ["--scale", "0.08", "--tasks", "2", "--matrix-tasks", "0", "--only", "regmean", "--out", str(tmp_path)]
    run("merges", *options)
    (row,) = rows(tmp_path / "merges.csv")
    assert row["merge"] == "regmean" and float(row["cpu_s"]) > 0 and float(row["given_mib"]) > 5
    assert run("applying", "--layers", "1", "--width", "64", "--rounds", "1").stdout.count("restored within 0\n") == 3
