"""How far the tiny models' numbers move on another kind of processor.

    python benchmarks/processors.py [--table tiny_t5/7nlp] [--setting NAME] [--out results/benchmarks]

Builds the table anew in clones of this project, once as this processor computes and once under each setting below, by
which the libraries take the instructions of an older one.  Prints how far each row moved, in points of test accuracy,
and the largest difference of a fine-tuned weight; writes <out>/processors.csv.

    python benchmarks/processors.py --cost 5

Fine-tunes tiny_t5 on one task so often, as this processor computes and under all three settings in turn.  Prints the
CPU seconds of a job, without the start of Python and torch.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from tallmasks.plan.project import open_plan

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "this processor": {},
    "ATen's AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN's AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL's AVX2": {"MKL_CBWR": "AVX2"},
    "all three": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="tiny_t5/7nlp", help="<model>/<benchmark>")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--setting", action="append", choices=list(SETTINGS)[1:], help="only this one; may be repeated")
    parser.add_argument("--cost", type=int, metavar="TIMES", help="only measure what all three settings cost")
    arguments = parser.parse_args()
    if arguments.cost:
        print(cost(arguments.cost).round(2).to_string())
        return
    settings = ["this processor", *(arguments.setting or list(SETTINGS)[1:])]
    with tempfile.TemporaryDirectory() as folder:
        clones = {name: built(Path(folder, str(i)), name, arguments.table) for i, name in enumerate(settings)}
        here = clones["this processor"]
        tables = {name: accuracies(clone, arguments.table) for name, clone in clones.items()}
        moved = pd.DataFrame({name: table - tables["this processor"] for name, table in tables.items()})
        moved.insert(0, "accuracy", tables["this processor"])
        moved.loc["largest difference of a weight"] = [np.nan, *(differing(here, clone) for clone in clones.values())]
    moved = moved.drop(columns="this processor").round(4)
    arguments.out.mkdir(parents=True, exist_ok=True)
    moved.to_csv(arguments.out / "processors.csv")
    print(moved.to_string())


def built(clone: Path, setting: str, table: str) -> Path:
    """A clone of the project in which the table was built under a setting."""
    print(f"{table} under {setting} ...", file=sys.stderr)
    clone_project(clone)
    run(clone, f"snakemake -j{os.cpu_count()} -- results/{table}/table.csv", setting)
    return clone


def clone_project(clone: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)


def run(clone: Path, command: str, setting: str) -> float:
    """Run a command in a clone under a setting; gives the CPU seconds that it took."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, shell=True, cwd=clone, env={**os.environ, **SETTINGS[setting], "PATH": path}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cost(times: int) -> pd.DataFrame:
    """CPU seconds of fine-tuning one task: mean, least and most of the runs under each setting."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        clone_project(clone)
        checkpoint = open_plan(clone).checkpoint("tiny_t5", "qasc", 0).path
        run(clone, f"snakemake -j{os.cpu_count()} -- {checkpoint}", "this processor")
        (log,) = clone.glob("logs/tiny_t5/checkpoint/*.log")
        command = log.read_text().splitlines()[0].removeprefix("$ ")
        seconds = pd.DataFrame(
            {
                setting: run(clone, command, setting) - run(clone, "python -c 'import torch'", setting)
                for setting in ("this processor", "all three")
            }
            for _ in range(times)
        )
    return seconds.agg(["mean", "min", "max"]).T


def accuracies(clone: Path, table: str) -> pd.Series[float]:
    return pd.read_csv(clone / "results" / table / "table.csv").set_index("method")["accuracy"]


def checkpoints(clone: Path) -> list[Path]:
    return sorted(clone.glob("store/*/checkpoints/*-s0-*.safetensors"))


def differing(one: Path, other: Path) -> float:
    """The largest difference of a weight between the fine-tuned models of two clones."""
    pairs = zip(map(load_file, checkpoints(one)), map(load_file, checkpoints(other)), strict=True)
    return max(float(np.abs(a[name] - b[name]).max()) for a, b in pairs for name in a)


if __name__ == "__main__":
    main()
