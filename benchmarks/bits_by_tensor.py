"""The bits that a bundle of `tallmasks compress` stores per weight and task, by kind of tensor.

    python benchmarks/bits_by_tensor.py BUNDLE...

Kinds are those of the figures (`layer_of` of classifiers).  Bytes are those of the streams, with lengths and steps.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from reproduction.models.classifiers.settings import layer_of
from tallmasks.bundles.bundle_parts import BundleParts, manifest_of, open_location
from tallmasks.bundles.streams import STEPS, bytes_of_piece, decoded, ends_of_pieces, stored_piece
from tallmasks.vectors.multiples import is_vector, pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    for path in parser.parse_args().bundles:
        location = open_location(path)
        manifest = manifest_of(location)
        parts, weights, nbytes, zeros = (
            BundleParts(location, manifest),
            defaultdict(int),
            defaultdict(int),
            defaultdict(int),
        )
        for task in manifest.tasks:
            tensors, number = parts.of_task(task), 0
            ends = ends_of_pieces(tensors)
            for name, tensor in manifest.encoded.items():
                kind = "vectors" if is_vector(tensor.shape) else layer_of(name)[1]
                for start, stop in pieces(tensor.size):
                    piece = stored_piece(tensors, ends, number)
                    integers = decoded(piece, np.int32, stop - start)
                    changed = np.count_nonzero(integers.values)
                    nbytes[kind] += bytes_of_piece(piece, tensors[STEPS][number])
                    weights[kind] += stop - start
                    zeros[kind] += stop - start - changed
                    number += 1
        print(f"{path}: {8 * sum(nbytes.values()) / sum(weights.values()):.2f} bits per weight and task")
        for kind in sorted(weights, key=lambda one: -nbytes[one]):
            share, of_all = weights[kind] / sum(weights.values()), nbytes[kind] / sum(nbytes.values())
            bits, zero = 8 * nbytes[kind] / weights[kind], zeros[kind] / weights[kind]
            print(f"  {kind:13} {share:6.1%} of weights, {of_all:6.1%} of bytes, {bits:.2f} bits, {zero:.1%} zeros")


if __name__ == "__main__":
    main()
