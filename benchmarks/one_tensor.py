"""What a merge over tensors needs for one matrix of many tasks, beyond the matrix of every task itself.

    OMP_NUM_THREADS=1 python benchmarks/one_tensor.py tsv_m [--tasks 20] [--shape 4096 1024]

The default is an MLP matrix of ViT-L/14.  Prints seconds of CPU, and the memory by which the process grew.
"""

import argparse
import resource
import time

import numpy as np

from tallmasks import methods
from tallmasks.methods import Place
from tallmasks.methods.options import given
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

NAME = "blocks.0.mlp.c_fc.weight"


def peak() -> float:
    """The most memory this process had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(spec: str, tasks: int, shape: tuple[int, int]) -> tuple[float, float, float]:
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
    facts = merge.look(vectors, *of_data, **given(merge.look, merge.chosen)) if merge.look else None
    options, place = given(merge.apply, merge.chosen), Place(NAME, 0, tensors[0].size)
    before, start = peak(), time.process_time()
    merge.apply(tensors, place, facts, **options)
    mebibytes = (tensors.nbytes + sum(gram.nbytes for gram in grams)) / 2**20
    return time.process_time() - start, peak() - before, mebibytes


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("merge", help="with options behind it or not: wudi:steps=10")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--shape", type=int, nargs=2, default=[4096, 1024])
    arguments = parser.parse_args()
    seconds, more, given = measured(arguments.merge, arguments.tasks, tuple(arguments.shape))
    print(f"{arguments.merge}: {seconds:.0f} s of CPU, {more:.0f} MiB beyond {given:.0f} MiB")


if __name__ == "__main__":
    main()
