"""How good lambdas are that were chosen without data, beside those that validation data chose.

    python benchmarks/fit.py [--model tiny]

Reads what the store holds of a model (`make figures` and the tables over seeds make it): for every benchmark, seed, and
task of TALL-masks it prints the loss of validation accuracy against the best lambda of the grid, mean and worst
over tasks, for rules that look at the vectors alone and for the same lambda for every task.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from tallmasks import methods
from tallmasks.store.artifacts import load_json
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector, open_task_vector


def rules(own: np.ndarray, merged: np.ndarray, grid: list[float]) -> dict[str, int]:
    """The place in the grid that each rule chooses for a task."""
    *kept, length = kernels.kept_lengths(own, merged, grid)
    masks = [abs(own) > np.float32(value) * abs(merged - own) for value in grid]
    squares = np.array([float((merged[mask] ** 2).sum()) for mask in masks])
    products = np.array([float((merged[mask] * own[mask]).sum()) for mask in masks])
    whole = float((own**2).sum())
    return {
        "equal length, L1 (--fit)": int(np.argmin(np.abs(np.log(np.array(kept) / length)))),
        "equal length, L2": int(np.argmin(np.abs(np.log(squares / whole)))),
        "projection on tau_t of length 1": int(np.argmin(np.abs(products / whole - 1))),
        "smallest distance to tau_t": int(np.argmin(squares - 2 * products)),
        **{f"lambda = {value:g}": place for place, value in enumerate(grid)},
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    folder = Path("store", parser.parse_args().model, "derived")
    lost: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path in sorted(folder.glob("evaluations/tall_mask_*.json")):
        found = load_json(path)
        merge = methods.get(found["method"]).merge
        seed = path.stem.rsplit("-", 1)[0].rpartition("-s")[2]
        sources = [sorted(folder.glob(f"task_vectors/{task}-s{seed}-*.safetensors")) for task in found["tasks"]]
        if not all(sources) or merge is None:
            continue
        vectors: list[TaskVector] = [open_task_vector(of_task[-1]) for of_task in sources]
        merged = np.empty(vectors[0].flat.size, np.float32)
        methods.get_merge(merge)(vectors, merged)
        for place, vector in enumerate(vectors):
            accuracy = 100 * np.array(found["curve"][place]) / found["total"]["validation"][place]
            for rule, chosen in rules(vector.flat, merged, found["grid"]).items():
                lost[merge, rule].append(float(accuracy.max() - accuracy[chosen]))
    print("merge,rule,mean_loss,worst_loss,choices")
    for (merge, rule), losses in lost.items():
        print(f'{merge},"{rule}",{np.mean(losses):.2f},{np.max(losses):.2f},{len(losses)}')


if __name__ == "__main__":
    main()
