"""What `tallmasks compress --entropy-coding` saves of the bundles of a store, and what it costs to load them.

    python benchmarks/coded_bundles.py store/tiny models/tiny.safetensors > coded_bundles.csv

The merges, benchmarks, seeds and lambdas are those of `entropy.py`.  Each bundle is written with and without the
option, loaded, and every task's update compared, bit by bit.  `load` is from opening the files to the last task's first
update, checks of their sha256 included.  Seconds are of the processor, so that other work on the machine counts little;
the first bundle's compiles loops.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from entropy import DTYPES, Found, bundles_of

from tallmasks.bundles.bundle_writer import BundleFacts, new_bundle
from tallmasks.bundles.loaded_bundle import load_bundle
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint

COLUMNS = (
    "merge", "tasks", "seed", "lambdas", "dtype", "merged_bytes", "merged_gain_percent", "mask_bytes",
    "mask_gain_percent", "bundle_bytes", "bundle_gain_percent", "write_seconds", "coded_write_seconds", "load_seconds",
    "coded_load_seconds",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="a model's folder in a store, as store/tiny")
    parser.add_argument("base", type=Path, help="the pretrained model")
    arguments = parser.parse_args()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    base = open_checkpoint(arguments.base)
    for found in bundles_of(arguments.store):
        for dtype in DTYPES:
            table.writerow(row_of(found, base, dtype))
            sys.stdout.flush()


def row_of(found: Found, base: Checkpoint, dtype: str) -> list[object]:
    """One bundle, written and read in both ways."""
    tasks = [f"task {number}" for number in range(len(found.masks))]
    unchanged = [name for name, form in base.tensors.items() if name not in found.layout.names and form.is_float]
    sizes, times = [], []
    with tempfile.TemporaryDirectory() as folder:
        bundles = []
        for coded in (False, True):
            place, start = Path(folder, str(coded)), time.process_time()
            facts = BundleFacts(found.merge, base, tasks, dtype=dtype, unchanged=unchanged, entropy_coding=coded)
            with new_bundle(place, facts) as new:
                merged = found.layout.split(found.merged)
                masks = [found.layout.split(mask) for mask in found.masks]
                for name, values in merged.items():
                    bits = {t: np.packbits(m[name], bitorder="little") for t, m in zip(tasks, masks, strict=True)}
                    new.write(name, 0, values.reshape(-1), bits)
            written = time.process_time()
            bundle = load_bundle(place, base)
            for task in tasks:
                bundle.update(task, found.layout.names[0])
            times.append((written - start, time.process_time() - written))
            files = bundle.manifest.files
            sizes.append(
                [files["merged.safetensors"].size, sum(files[f].size for f in bundle.manifest.task_files.values())]
            )
            bundles.append(bundle)
        for task in tasks:
            for name in found.layout.names:
                np.testing.assert_array_equal(*(one.update(task, name) for one in bundles))
    plain, coded_sizes = [[*pair, sum(pair)] for pair in sizes]
    gains = [round(100 - 100 * after / before, 1) for before, after in zip(plain, coded_sizes, strict=True)]
    shown = [value for pair in zip(plain, gains, strict=True) for value in pair]
    seconds = [times[0][0], times[1][0], times[0][1], times[1][1]]
    return [found.merge, len(tasks), found.seed, found.lambdas, dtype, *shown, *(f"{value:.2f}" for value in seconds)]


if __name__ == "__main__":
    main()
