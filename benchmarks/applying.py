"""Switching a live model out of a bundle, beside torch's copy_ of the same tensors: in turns, in one process.

    python benchmarks/applying.py [--layers 12] [--width 768] [--rounds 21]
    python benchmarks/applying.py --device cuda

A ViT of noise in float32, two models of it.  On the CPU: medians of processor time on one thread.  On a GPU: medians of
wall time until the GPU has finished; the module is on the GPU, and the bundle is kept there (beside a copy within the
device), or not (beside a copy from pinned memory).  Each ratio is the median over the rounds.  The last number is the
largest difference of the restored module from the base, 0.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import torch
from noise_checkpoints import vision_tower, write_checkpoints
from safetensors.torch import load_file

import tallmasks
from tallmasks.bundles.bundle import Bundle

Weights = dict[str, torch.Tensor]
FORMS: dict[str, dict[str, Any]] = {
    "compress": {},
    "compress --step 0.4": {"step": 0.4},
    "compress --method lossless": {"method": "lossless"},
    "compress --method ties": {"method": "ties"},
}


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    """Processor time, or on a GPU wall time."""
    if device.type == "cpu":
        start = time.process_time()
        run()
        return 1e3 * (time.process_time() - start)
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    run()
    torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - start)


def module_of(weights: Weights) -> torch.nn.Module:
    """A module with these parameters."""
    module = torch.nn.Module()
    for name, tensor in weights.items():
        *path, last = name.split(".")
        owner = module
        for part in path:
            owner = owner._modules.setdefault(part, torch.nn.Module())  # type: ignore[assignment]
        owner.register_parameter(last, torch.nn.Parameter(tensor.clone(), requires_grad=False))
    return module


def compare(module: torch.nn.Module, source: Weights, bundle: Bundle, rounds: int, device: torch.device) -> str:
    """Times of copying the source and of switching, and their ratio."""
    parameters = dict(module.named_parameters())

    def copy() -> None:
        for name, tensor in source.items():
            parameters[name].copy_(tensor, non_blocking=True)

    times = []
    for number in range(rounds + 2):  # the first two compile, read and upload
        switch = partial(bundle.apply_, module, bundle.tasks[number % 2])
        times.append((milliseconds(copy, device), milliseconds(switch, device)))
    copied, switched, ratio = map(statistics.median, zip(*((a, b, b / a) for a, b in times[2:]), strict=True))
    bundle.restore_(module)
    return f"copy {copied:.1f} ms, apply_ {switched:.1f} ms, ratio {ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="default: cpu")
    arguments = parser.parse_args()
    device = arguments.device
    if device.type == "cpu":
        torch.set_num_threads(1)
        numba.set_num_threads(1)
    else:
        print(torch.cuda.get_device_name(device))
    for what, options in FORMS.items():
        with tempfile.TemporaryDirectory() as place:
            shapes = vision_tower(arguments.layers, arguments.width, 32)
            base, tasks = write_checkpoints(Path(place), shapes, "F32", 2, "")
            made = tallmasks.compress(base, tasks, Path(place, "bundle"), **options)
            weights = load_file(base)
            module = module_of(weights).to(device)
            size = sum(tensor.numel() for tensor in weights.values()) / 1e6
            print(f"{size:.1f} M parameters, {what}:")
            if device.type == "cpu":
                cases = [("in memory", weights, None)]
            else:
                on_device = {name: tensor.to(device) for name, tensor in weights.items()}
                pinned = {name: tensor.pin_memory() for name, tensor in weights.items()}
                cases = [("bundle on the GPU", on_device, device), ("bundle not on the GPU", pinned, None)]
            for where, source, kept_on in cases:
                bundle = tallmasks.load_bundle(made, base, device=kept_on)
                print(f"    {where}: {compare(module, source, bundle, arguments.rounds, device)}")
            restored = module.state_dict()
            off = max(float((restored[name].cpu() - tensor).abs().max()) for name, tensor in weights.items())
            print(f"    restored within {off:g}", flush=True)


if __name__ == "__main__":
    main()
