"""The benchmarks of record run, at a size of seconds; no time is looked at."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_benchmark_of_merging_on_disk_runs(tmp_path: Path) -> None:
    """The published numbers could not be measured again, and nobody would see it before the next release."""
    out, place = tmp_path / "out", tmp_path / "files"
    command = [sys.executable, "benchmarks/streaming.py", "--scale", "0.0001", "--repeats", "1", "--out", str(out)]
    command += ["--place", str(place), "--only", "vit_b32:8", "--grid", "1:2", "--array-parameters", "20000000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*command, "--array-tasks", "2"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 of 12 layers" in done.stderr  # what is left out is said
    with (out / "streaming.csv").open() as file:
        rows = list(csv.DictReader(file))
    on_files = [row for row in rows if row["shape"].startswith("vit_b32")]
    assert {"merge ties", "merge consensus_ties", "compress ties", "export"} <= {row["what"] for row in on_files}
    assert all(float(row["read_gb"]) > 0 for row in on_files)
    assert {row["shape"] for row in rows} >= {"arrays", "grid"}
    assert (out / "streaming.svg").stat().st_size > 1000
    assert not list(place.iterdir())
