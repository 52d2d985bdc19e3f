"""What it costs that artifacts vouch for their content: digests when they are written, checks when they are read.

    python benchmarks/seals.py                       synthetic vectors of ViT-B/32's size, beside their localisation
    python benchmarks/seals.py --parameters 1e7 --tasks 4
    python benchmarks/seals.py --project .           all checks of the jobs that built what is here, beside their time

Localisation is what a benchmark's jobs make of its task vectors: both merges, every task's masks for the whole lambda
grid over each, and their agreement, from memory-mapped files to written ones.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numba
import numpy as np

from tallmasks.masks.consensus import write_agreement
from tallmasks.masks.mask_bundles import write_mask_bundle
from tallmasks.methods import get_merge
from tallmasks.store import seals
from tallmasks.store.artifacts import ARTIFACT, DIGEST_LENGTH, as_metadata, check, facts_of, read_label
from tallmasks.store.folders import STORE, files_under
from tallmasks.store.tensor_files import Layout, new_flat, open_tensors
from tallmasks.vectors.multi_task_vectors import write_multi_task_vector
from tallmasks.vectors.task_vectors import FORMAT

LAMBDAS = [0.2, 0.3, 0.4, 0.5, 0.6]
FACTS = {"format": FORMAT, "thresholds": '{"0.2": 1.28}', "frozen": "0"}


def synthetic(parameters: int, tasks: int) -> None:
    """Localisation of random vectors on disk, with the time that digests take in it and that checks add to it."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        paths = {f"task{number}": Path(folder, f"task{number}.safetensors") for number in range(tasks)}
        metadata = as_metadata(facts_of({"kind": "task_vector"}, {}, 1)) | FACTS
        for number, path in enumerate(paths.values()):
            with new_flat(path, Layout(("a",), ((parameters,),)), metadata) as new:
                draw = np.random.default_rng(number)
                for start in range(0, parameters, 1 << 20):
                    piece = new.flat[start : start + (1 << 20)]
                    piece[:] = draw.standard_normal(piece.size, np.float32)
        plain = {key: value for key, value in metadata.items() if key not in FACTS}
        localise(paths, Path(folder), plain)  # compiles, and brings the files into memory
        start = time.process_time()
        made = localise(paths, Path(folder), plain)
        whole = time.process_time() - start
        files = [*paths.values(), *made]
        start = time.process_time()
        for written in map(open_tensors, made):
            seals.content_of_tensors(written.described, written.data)
        digests = time.process_time() - start
        start = time.process_time()
        for path in files[:-2]:  # each once, by the first job that reads it; nothing here reads the last two
            check(path)
        checks = time.process_time() - start
    plain, threads = whole - digests, numba.get_num_threads()
    print(f"{tasks} task vectors of {parameters} values; CPU time of localisation, on {threads} threads:")
    print(f"{plain:.2f} s, digests {digests:.2f} s, checks {checks:.2f} s: {(digests + checks) / plain:.1%} on top")


def localise(vectors: dict[str, Path], folder: Path, metadata: dict[str, str]) -> list[Path]:
    """What the workflow's jobs make of task vectors: both merges, their masks, the agreements; in this order."""
    made = []
    for merge in ("sum", "ties_sum"):
        merged, bundle, agreement = (
            folder / f"{merge}-{kind}.safetensors" for kind in ("merged", "masks", "agreement")
        )
        write_multi_task_vector(get_merge(merge), merge, list(vectors.values()), merged, metadata)
        write_mask_bundle(bundle, vectors, merged, LAMBDAS, metadata)
        write_agreement(agreement, bundle, dict.fromkeys(vectors, LAMBDAS[2]), metadata)
        made.append((merged, bundle, agreement))
    return [path for kind in zip(*made, strict=True) for path in kind]


def of_project(root: Path) -> None:
    """The digests and checks of the jobs that made what lies in a project's store, beside the time that they took."""
    artifacts = {path: read_label(path) for path in files_under(root / STORE) if ARTIFACT.fullmatch(path.name)}
    read = {digest for label in artifacts.values() for role in label.recipe["inputs"].values() for digest in role}
    checks, digests = 0.0, 0.0
    for path in artifacts:
        start = time.process_time()
        check(path)
        digests += time.process_time() - start  # it takes as long to write one
        if path.stem[-DIGEST_LENGTH:] in read:  # by the first job that reads the file
            checks += time.process_time() - start
    logs = list((root / "logs").glob("*/*/*.benchmark.tsv"))
    jobs = sum(float(row["s"]) for log in logs for row in csv.DictReader(log.open(), delimiter="\t"))
    print(f"{len(artifacts)} artifacts: digests {digests:.2f} s, checks {checks:.2f} s of CPU time")
    print(f"{len(logs)} jobs took {jobs:.1f} s: {(checks + digests) / max(jobs, 1e-9):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=87_849_216, help="values of a vector")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--project", type=Path, help="a project's folder, in which something was built")
    arguments = parser.parse_args()
    if arguments.project:
        of_project(arguments.project)
    else:
        synthetic(int(arguments.parameters), arguments.tasks)


if __name__ == "__main__":
    main()
