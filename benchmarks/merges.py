"""Processor time and memory of every merge: on a small ViT of ViT-B/32's proportions, and on one matrix of ViT-L/14.

    python benchmarks/merges.py [--scale 0.25] [--tasks 8] [--matrix-tasks 20] [--only NAME ...]
                                [--out results/benchmarks]

Writes merges.csv.  The small ViT has 12 layers, of `scale` times the width of 768; its task vectors, and what is known
of the tasks' data, are noise in memory.  Merges that learn are left out.  The matrix is [4096, 1024], for the merges
over whole tensors.  Every measurement is a process of its own with one thread, which has merged something small before.

    cpu_s                    of the merge alone
    ns_per_parameter_task    the same by parameter and task
    more_mib                 by how much the process grew, beyond what it was given
    given_mib                what it was given: task vectors or matrices, and statistics
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import sys
import time
from math import prod
from pathlib import Path

import numpy as np
from measured import Failed, cost_of
from model_shapes import vision_tower

from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import TensorPiece
from tallmasks.methods.options import options_for
from tallmasks.vectors.task_vectors import TaskVector

COLUMNS = ("what", "tasks", "merge", "parameters", "cpu_s", "ns_per_parameter_task", "more_mib", "given_mib")
WIDTH, LAYERS, MATRIX, FEW_STEPS = 768, 12, (4096, 1024), "wudi:steps=20"
NAME = "blocks.0.mlp.c_fc.weight"
"""What the matrix is called."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def small_vit(width: int, layers: int) -> Layout:
    """Where the tensors of a ViT lie."""
    shapes = vision_tower(layers, width, 32, 50)
    return Layout(tuple(sorted(shapes)), tuple(shapes[name] for name in sorted(shapes)))


def known(statistic: str | None, layout: Layout, tasks: int) -> list[dict[str, np.ndarray]]:
    """Made-up statistics of so many tasks."""
    draw = np.random.default_rng(1)
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    if statistic == "grams":
        shapes = {name: shape for name, shape in shapes.items() if len(shape) == 2 and "embedding" not in name}
    found = []
    for _ in range(tasks if statistic else 0):
        one = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        found.append({name: x.T @ x / len(x) for name, x in one.items()} if statistic == "grams" else
                     {name: x * x for name, x in one.items()})  # fmt: skip
    return found


def peak() -> float:
    """The most memory this process had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker_matrix(spec: str, tasks: int, shape: tuple[int, int]) -> tuple[float, float, float]:
    """Seconds of CPU, and MiB beyond those of the matrices (and of the tasks' statistics, where the merge has some),
    which come last; once in a process."""
    draw = np.random.default_rng(0)
    tensors = np.empty((tasks, *shape), np.float32)
    for matrix in tensors:
        draw.standard_normal(out=matrix, dtype=np.float32)
    merge = methods.get_merge(spec)
    inputs = [draw.standard_normal((2 * shape[1], shape[1]), np.float32) for _ in range(1 if merge.statistics else 0)]
    grams = [x.T @ x / len(x) for x in inputs for _ in range(tasks)]
    vectors = [TaskVector(matrix.reshape(-1), Layout((NAME,), (shape,)), {}) for matrix in tensors]
    of_data = [[{NAME: gram} for gram in grams]] if grams else []
    facts = merge.prepare(vectors, *of_data, **options_for(merge.prepare, merge.chosen)) if merge.prepare else None
    options, piece = options_for(merge.apply, merge.chosen), TensorPiece(NAME, 0, tensors[0].size)
    before, start = peak(), time.process_time()
    merge.apply(tensors, piece, facts, **options)
    mebibytes = (tensors.nbytes + sum(gram.nbytes for gram in grams)) / 2**20
    return time.process_time() - start, peak() - before, mebibytes


def worker_model(spec: str, layout: Layout, tasks: int) -> tuple[float, float, float]:
    """Seconds of CPU, MiB beyond what was given, and MiB of that, of a merge of whole models."""
    draw = np.random.default_rng(0)
    merge = methods.get_merge(spec)
    vectors = [TaskVector(draw.standard_normal(layout.size, np.float32), layout, {}) for _ in range(tasks)]
    statistics = known(merge.statistics, layout, tasks)
    out = np.full(layout.size, np.nan, np.float32)  # in memory before
    before, start = peak(), time.process_time()
    merge(vectors, out, statistics)
    arrays = [out, *(vector.flat for vector in vectors), *(x for one in statistics for x in one.values())]
    return time.process_time() - start, peak() - before, sum(array.nbytes for array in arrays) / 2**20


def work(arguments: argparse.Namespace) -> None:
    """Print one measurement as JSON."""
    what, spec, tasks, width = arguments.worker
    worker_model(spec.partition(":")[0] + (":steps=1" if spec.startswith("wudi") else ""), small_vit(64, 2), 2)
    if what == "model":
        print(json.dumps(worker_model(spec, small_vit(int(width), LAYERS), int(tasks))))
    else:
        print(json.dumps(worker_matrix(spec, int(tasks), MATRIX)))


def rows(arguments: argparse.Namespace) -> list[tuple[str, int, str, int, int]]:
    """What is measured: on what, tasks, merge, parameters, width."""
    width = max(64, round(WIDTH * arguments.scale / 64) * 64)
    every = {name: methods.get_merge(name) for name in methods.merge_names()}
    merges = [name for name, merge in every.items() if not merge.learn]
    merges = [name for name in merges if arguments.only is None or name in arguments.only]
    over = [FEW_STEPS if name == "wudi" else name for name in merges if methods.get_merge(name).over == "tensors"]
    found = [("model", arguments.tasks, name, small_vit(width, LAYERS).size, width) for name in merges]
    if arguments.matrix_tasks:
        found += [("matrix", arguments.matrix_tasks, name, prod(MATRIX), width) for name in over]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.25, help="of the width")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--matrix-tasks", type=int, default=20, help="0 for no matrix")
    parser.add_argument("--only", nargs="*", help="merges; all")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "merges.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for what, tasks, spec, size, width in rows(arguments):
            command = [sys.executable, __file__, "--worker", what, spec, str(tasks), str(width)]
            try:
                cpu, more, given = json.loads(cost_of(command, ONE_THREAD).output.splitlines()[-1])
            except Failed as error:
                sys.exit(str(error))
            ns = cpu / size / tasks * 1e9
            table.writerow([what, tasks, spec, size, round(cpu, 3), round(ns, 2), round(more, 1), round(given, 1)])
            file.flush()
            print(
                f"{what:8} {tasks:3} {spec:16} {cpu:8.2f} s {ns:9.2f} ns {more:8.1f} MiB", file=sys.stderr, flush=True
            )


if __name__ == "__main__":
    main()
