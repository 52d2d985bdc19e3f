"""The accuracy of fine-tuned models of the workflow as LoRAs of a rank, as `tallmasks export --as-lora` writes them.

    python benchmarks/lora_ranks.py minilm 8tasks [--ranks 8 16 64]   # needs the models' checkpoints

Matrices, with the tables of embeddings, are truncated; the changes of all other tensors are left out.  Prints a line
for each rank: the accuracy in percent of the fine-tuned models', mean and worst task, on validation and test data; the
share of the changes' squared norm that is kept; and the bytes of a task's LoRA in float32.
"""

import argparse

import numpy as np
from default_method import SPLITS, stored

from tallmasks.vectors.low_rank import squared_norm, truncated_svd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("benchmark")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 64])
    arguments = parser.parse_args()
    vectors, _, accuracy = stored(arguments.model, arguments.benchmark)
    count = range(len(vectors))
    whole = {split: [accuracy(task, vectors[task].flat, split) for task in count] for split in SPLITS}
    for rank in arguments.ranks:
        updates, kept, nbytes = [], [], 0
        for vector in vectors:
            update = np.zeros_like(vector.flat)
            parts, share = vector.layout.split(update), 0.0
            for name, tensor in vector.layout.split(vector.flat).items():
                if tensor.ndim == 2:
                    left, right, norm = truncated_svd(np.ascontiguousarray(tensor), rank)
                    parts[name][...] = left @ right
                    share, nbytes = share + norm, nbytes + left.nbytes + right.nbytes
            updates.append(update)
            kept.append(share / squared_norm(vector.flat))
        scores = []
        for split in SPLITS:
            of_tasks = [100 * accuracy(task, updates[task], split) / whole[split][task] for task in count]
            scores += [f"{np.mean(of_tasks):.1f}", f"{min(of_tasks):.1f}"]
        print(arguments.model, rank, *scores, f"{np.mean(kept):.1%}", nbytes // len(vectors), sep=",", flush=True)


if __name__ == "__main__":
    main()
