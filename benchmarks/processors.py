"""How far the tiny models' numbers move on another kind of processor.

    python benchmarks/processors.py [--table tiny_t5/7nlp] [--setting NAME] [--out results/benchmarks]

Builds the table anew in clones of this project, once as this processor computes and once under each setting below, by
which the libraries take the instructions of an older one.  Prints how far each row moved, in points of test accuracy,
and the largest difference of a fine-tuned weight; writes <out>/processors.csv.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

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
    arguments = parser.parse_args()
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
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    command = ["snakemake", f"-j{os.cpu_count()}", "--", f"results/{table}/table.csv"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(command, cwd=clone, env={**os.environ, **SETTINGS[setting], "PATH": path}, check=True)
    return clone


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
