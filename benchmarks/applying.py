"""Switching a live model out of a bundle, beside torch's copy_ of the same tensors: in turns, in one process.

    python benchmarks/applying.py [--layers 12] [--width 768] [--dtypes float32 bfloat16] [--rounds 21]

A ViT of noise in float32, two models of it, on one thread.  Prints the medians of processor time: of a copy, of
`apply_`, and of their ratio in each round; and the largest difference of the restored module from the base, 0.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import torch
from model_shapes import vision_tower, write_checkpoints
from safetensors.torch import load_file

import tallmasks


def cpu(run: Callable[[], object]) -> float:
    """Seconds of the processor."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], help="of tau_MTL")
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    for dtype in arguments.dtypes:
        with tempfile.TemporaryDirectory() as place:
            shapes = vision_tower(arguments.layers, arguments.width, 32, 50)
            base, tasks = write_checkpoints(Path(place), shapes, "F32", 2, "")
            made = tallmasks.compress(base, tasks, Path(place, "bundle"), "task_arithmetic", dtype=dtype)
            bundle = tallmasks.load_bundle(made, base)
            weights, module = load_file(base), torch.nn.Module()
            for name, tensor in weights.items():
                *path, last = name.split(".")
                owner = module
                for part in path:
                    owner = owner._modules.setdefault(part, torch.nn.Module())  # type: ignore[assignment]
                owner.register_parameter(last, torch.nn.Parameter(tensor.clone(), requires_grad=False))
            pairs = [(parameter, weights[name]) for name, parameter in module.named_parameters()]

            def copy(pairs: list = pairs) -> None:
                for parameter, tensor in pairs:
                    parameter.copy_(tensor)

            rounds = []
            for number in range(arguments.rounds + 2):  # two compile and read the masks
                rounds.append((cpu(copy), cpu(partial(bundle.apply_, module, bundle.tasks[number % 2]))))
            bundle.restore_(module)
            off = max(float((parameter - tensor).abs().max()) for parameter, tensor in pairs)
        copies, applied, ratios = zip(*((a, b, b / a) for a, b in rounds[2:]), strict=True)
        size = sum(tensor.numel() for tensor in weights.values()) / 1e6
        one, other, ratio = map(statistics.median, (copies, applied, ratios))
        print(f"{size:.1f} M parameters, tau_MTL in {dtype}: copy {1e3 * one:.1f} ms, apply_ {1e3 * other:.1f} ms,")
        print(f"    ratio {ratio:.2f}, restored within {off:g}", flush=True)


if __name__ == "__main__":
    main()
