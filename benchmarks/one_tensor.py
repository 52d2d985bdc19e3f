"""What a merge over tensors needs for one matrix of many tasks, beyond the matrix of every task itself.

    OMP_NUM_THREADS=1 python benchmarks/one_tensor.py tsv_m [--tasks 20] [--shape 4096 1024]

The default is an MLP matrix of ViT-L/14.  Prints seconds of CPU, and the memory by which the process grew.
"""

import argparse
import resource
import time

import numpy as np

from tallmasks import methods


def peak() -> float:
    """The most memory this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("merge", help="with options behind it or not: wudi:steps=10")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--shape", type=int, nargs=2, default=[4096, 1024])
    arguments = parser.parse_args()
    draw = np.random.default_rng(0)
    tensors = np.empty((arguments.tasks, *arguments.shape), np.float32)
    for matrix in tensors:
        draw.standard_normal(out=matrix, dtype=np.float32)
    merge = methods.get_merge(arguments.merge).prepared([])
    before, start = peak(), time.process_time()
    merge(tensors, "blocks.0.mlp.c_fc.weight")
    seconds = time.process_time() - start
    print(f"{arguments.merge}: {seconds:.0f} s of CPU, {peak() - before:.0f} MB beyond {tensors.nbytes >> 20} MB")


if __name__ == "__main__":
    main()
