"""What the CLIP models of params.yaml will need: disk, GPU memory, arithmetic.  Computed, not measured on a GPU.

    python benchmarks/estimate.py [--tflops 100]

- Disk from the shapes of everything in the store and the sizes of the datasets that the registry expects.
- Memory from the weights, their gradients and both moments of AdamW (16 bytes a weight), and from what the backward
  pass keeps of one image, counted on the CPU in the precision of params.yaml.
- Arithmetic from torch's own counter: the forward pass of one image, three times that for a training step.  Hours are
  that by --tflops, what a GPU sustains (not its peak): a bound from below, since images must be read as well.
"""

import argparse
from collections.abc import Iterable

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tallmasks import methods
from tallmasks.models import clip
from tallmasks.project import open_plan
from tallmasks.tasks.vision.examples import KEPT_SIDE, TRAINING_MARGIN
from tallmasks.tasks.vision.registry import LARGEST_VALIDATION, TASKS, VALIDATION_SHARE

FLOAT = 4  # bytes
SMALL = {"eurosat": 64, "mnist": 28, "svhn": 32, "cifar100": 32, "stl10": 96, "pcam": 96, "fer2013": 48, "emnist": 28}
SMALL |= {"cifar10": 32, "fashionmnist": 28, "kmnist": 28}  # squares that are kept at their own size
assert max(SMALL.values()) <= KEPT_SIDE


def counts(task: str) -> tuple[int, int, int]:
    """Images for training, validation and test."""
    train, test = TASKS[task].counts["train"], TASKS[task].counts["test"]
    validation = min(int(train * VALIDATION_SHARE), LARGEST_VALIDATION)
    return train - validation, validation, test


def example_bytes(tasks: Iterable[str], side: int) -> float:
    """The decoded images of some tasks."""
    total = 0
    for task in tasks:
        train, validation, test = counts(task)
        stored = (SMALL.get(task, round(side * TRAINING_MARGIN)), SMALL.get(task, side))
        total += 3 * (train * stored[0] ** 2 + (validation + test) * stored[1] ** 2)
    return total


def evaluated_images(tasks: Iterable[str], alphas: int, lambdas: int) -> int:
    """Images times weight sets in all evaluations of one benchmark."""
    validation, test = (sum(counts(task)[split] for task in tasks) for split in (1, 2))
    tried = {"scaled": alphas, "masked": lambdas}
    rows = [methods.get(name) for name in methods.names()]
    return sum(tried.get(row.protocol, 1) * validation + test for row in rows)


def flops_and_kept_bytes(architecture: str, size: int, precision: str) -> tuple[float, float]:
    """Of one image: operations of the forward pass, and bytes that the backward pass needs of it."""
    network = clip.build(architecture)
    kept = []
    for images in (torch.zeros(1, 3, size, size), torch.zeros(2, 3, size, size)):
        seen: dict[int, int] = {}

        def keep(tensor: torch.Tensor, seen: dict[int, int] = seen) -> torch.Tensor:
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"),
        ):
            features = network.encode_image(images)
        functional.normalize(features.float(), dim=-1).sum().backward()
        kept.append(sum(seen.values()))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.encode_image(torch.zeros(1, 3, size, size))
    return counter.get_total_flops(), kept[1] - kept[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=100.0, help="what the GPU sustains")
    tflops = parser.parse_args().tflops
    plan = open_plan()
    benchmarks = {name: plan.tasks(name) for name in ("8tasks", "14tasks", "20tasks")}
    grids = plan.params["grids"]
    size = plan.model("vit_b32")["preprocess"]["size"]
    for name, tasks in benchmarks.items():
        print(f"{name}: decoded images {example_bytes(tasks, size) / 1e9:.0f} GB, shared by all models")
    for model in ("vit_b32", "vit_b16", "vit_l14"):
        spec = plan.model(model)
        recipe, network = spec["finetuning"], clip.build(spec["architecture"])
        every = sum(parameter.numel() for parameter in network.parameters())
        trainable = sum(parameter.numel() for parameter in network.visual.parameters())
        del network
        flops, kept = flops_and_kept_bytes(spec["architecture"], size, recipe["precision"])
        at_once = recipe.get("micro_batch_size", recipe["batch_size"])
        memory = 4 * FLOAT * trainable + at_once * kept
        step = 3 * flops * recipe["batch_size"]
        print(
            f"{model}: one image {flops / 1e9:.1f} GFLOP forward, {kept / 1e6:.0f} MB kept for the backward pass; "
            f"fine-tuning {memory / 1e9:.0f} GB of GPU memory with {at_once} images at once, "
            f"{recipe['iterations'] * step / 1e12 / tflops / 60:.0f} min a task"
        )
        for benchmark, tasks in benchmarks.items():
            vectors, merges = len(tasks), 3
            store = FLOAT * (every + (2 * vectors + merges) * trainable) + 2 * (3 * vectors / 8 + 1) * trainable
            images = evaluated_images(tasks, len(grids["scaling_coefficient"]), len(grids["mask_lambda"]))
            print(
                f"  {benchmark}: store {store / 1e9:.0f} GB; fine-tuning "
                f"{len(tasks) * recipe['iterations'] * step / 1e12 / tflops / 3600:.1f} h, evaluation of "
                f"{images / 1e6:.1f} million images x models {images * flops / 1e12 / tflops / 3600:.1f} h"
            )


if __name__ == "__main__":
    main()
