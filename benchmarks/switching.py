"""Switching a live model from task to task out of a bundle, beside one copy of its weights, in the same run.

    python benchmarks/switching.py [--dtype bfloat16] [--model-dtype bfloat16] [--model vit_b32] [--rounds 15]

Makes a base and two models of it from noise at true shapes, compresses them, loads the bundle and switches a torch
module on the CPU.  Prints milliseconds and, round by round, the ratio to the copy of a switch, of a block for the task
that the module holds already, and of a restoring; what the first switch to a task takes longer than later ones, which
is what reading its mask ahead could save; what the bundle takes in memory; the largest difference between the restored
module and the base, which has to be 0.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path

import torch
from model_shapes import MODELS, Shapes, write_checkpoints
from safetensors.torch import load_file

import tallmasks
from tallmasks.commands.main import main as command

DTYPES = {"float32": ("F32", torch.float32), "bfloat16": ("BF16", torch.bfloat16)}


def module_of(shapes: Shapes, dtype: torch.dtype) -> torch.nn.Module:
    """A module with parameters of these names and shapes."""
    root = torch.nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, torch.nn.Module())
            place = place.get_submodule(part)
        place.register_parameter(last, torch.nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False))
    return root


def anonymous() -> float:
    """MB of this process's memory that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(shapes: Shapes, embedding: str, dtype: str, model_dtype: str, rounds: int, place: Path) -> None:
    stored, torch_dtype = DTYPES[model_dtype]
    base, tasks = write_checkpoints(place, shapes, stored, 2, embedding)
    given = [word for name, path in tasks.items() for word in ("--task", f"{name}={path}")]
    made = command(["compress", "--base", str(base), *given, "--dtype", dtype, "-o", str(place / "bundle")])
    if made:
        raise SystemExit(made)
    weights, module = load_file(base), module_of(shapes, torch_dtype)
    module.load_state_dict(weights)
    before = anonymous()
    bundle = tallmasks.load_bundle(place / "bundle", base=base)
    first, second = bundle.tasks
    beginning = seconds(lambda: bundle.apply_(module, first))
    held = anonymous() - before
    with (place / "bundle" / bundle.manifest.task_files[second]).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # as if another program had needed the memory
    first_use = seconds(lambda: bundle.apply_(module, second))
    pairs = [(parameter, weights[name]) for name, parameter in module.named_parameters()]

    def copy() -> None:
        for parameter, tensor in pairs:
            parameter.copy_(tensor)

    def block(task: str) -> None:
        with bundle.switched(module, task):
            pass

    runs: dict[str, Callable[[int], object]] = {
        "copy": lambda number: copy(),
        "switch": lambda number: block((first, second)[number % 2]),
        "again": lambda number: block((first, second)[number % 2]),
        "restore": lambda number: bundle.restore_(module),
    }
    times: dict[str, list[float]] = {what: [] for what in runs}
    for number in range(rounds + 1):  # the first is not counted
        for what, run in runs.items():
            times[what].append(seconds(partial(run, number)))
    off = max(float((parameter - tensor).abs().max()) for parameter, tensor in pairs)
    parameters = sum(map(prod, shapes.values()))
    size = sum(file.stat().st_size for file in (place / "bundle").rglob("*") if file.is_file())
    print(
        f"{parameters / 1e6:.1f} M parameters in {model_dtype}, tau_MTL in {dtype}, {torch.get_num_threads()} threads"
    )
    print(f"the first switch, which checks the files and compiles: {beginning:.1f} s")
    print(f"the first switch to another task, its mask not in memory: {first_use * 1e3:.1f} ms")
    print(f"bundle of 2 tasks: {size / 1e6:.0f} MB of files, {held:.0f} MB of memory beside the module")
    copies = times["copy"][1:]
    for what, each in times.items():
        ratios = sorted(one / beside for one, beside in zip(each[1:], copies, strict=True))
        print(
            f"{what:8} least {min(each[1:]) * 1e3:7.1f} ms  ratio to the copy: of the least "
            f"{min(each[1:]) / min(copies):.2f}, median of pairs {statistics.median(ratios):.2f}"
        )
    print(f"restored within {off:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16", "int8"), default="bfloat16")
    parser.add_argument("--model-dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--model", choices=[model.name for model in MODELS], default="vit_b32")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    (model,) = (model for model in MODELS if model.name == arguments.model)
    shapes = model.shapes(arguments.layers or model.layers)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        measure(shapes, model.embedding, arguments.dtype, arguments.model_dtype, arguments.rounds, Path(folder))


if __name__ == "__main__":
    main()
