"""What the CLIP models of params.yaml will need: disk, GPU memory, arithmetic.  Computed, not measured on a GPU.

    python benchmarks/estimate.py [--tflops 100]
    python benchmarks/estimate.py --plan vit_b32 20tasks [--cores 4] [--gpus 1]

- Disk from the shapes of everything in the store and the sizes of the datasets that the registry expects.
- Memory of all tensors between two training steps, and of what the backward pass keeps, in the precision of params.yaml
  (tallmasks.training.gpu_memory).
- Arithmetic from torch's own counter: the forward pass of one image, three times that for a training step.  Hours are
  that by --tflops, what a GPU sustains (not its peak): a bound from below, since images must be read as well.
- With --plan, the jobs of one table in time: each job's seconds from the same arithmetic and from the constants below,
  started as soon as its inputs, cores and GPU are there; the time of the whole, how busy the GPU is, and the chain of
  jobs that decides it.  Three ways: every job with 4 threads and imports of its own; forks of the warm Python; and
  with the threads of params.yaml.
"""

import argparse
import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from tallmasks import methods
from tallmasks.models.clip import network as clip
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import open_plan
from tallmasks.plan.views import results_of
from tallmasks.tasks.vision.decoding import TRAINING_MARGIN
from tallmasks.tasks.vision.example_sizes import KEPT, counts, example_bytes
from tallmasks.training.gpu_memory import at_once, kept_bytes, state_bytes

FLOAT = 4  # bytes
# Seconds that no arithmetic gives, by hand: orders of magnitude, not measurements of a GPU machine.
IMPORTS, FORK = 10.0, 0.3  # torch and open_clip in a process of its own; a fork that has them
CUDA = 2.0  # to initialise CUDA and its libraries
DECODING, COPYING = 0.010, 0.0005  # of one image on one core: a photograph, a small square
DISK = 1e9  # bytes a second that arrays, models and images are read and written with


def evaluated_images(tasks: Iterable[str], alphas: int, lambdas: int) -> int:
    """Images times weight sets in all evaluations of one benchmark."""
    validation, test = (sum(counts(task)[split] for task in tasks) for split in ("validation", "test"))
    tried = {methods.Scaled: alphas, methods.Masked: lambdas}
    rows = [methods.get(name) for name in methods.names("paper")]
    return sum(tried.get(type(row.protocol), 1) * validation + test for row in rows)


def flops(architecture: str, size: int) -> float:
    """Operations of the forward pass over one image."""
    network = clip.build(architecture)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.encode_image(torch.zeros(1, 3, size, size))
    return counter.get_total_flops()


@dataclass(frozen=True)
class Way:
    """How jobs are run: seconds before a job that needs torch begins, threads of every job (those of params.yaml if
    None)."""

    name: str
    start: float
    threads: int | None


WAYS = (
    Way("4 threads a job, imports in each", IMPORTS, 4),
    Way("forks of the warm Python", FORK, 4),
    Way("and the threads of params.yaml", FORK, None),
)
STEPS = {"checkpoint": "finetuning", "head": "evaluation", "task_evaluation": "evaluation", "evaluation": "evaluation"}


class Timing:
    """Seconds of every job of one model."""

    def __init__(self, plan: Plan, model: str, tflops: float) -> None:
        self.plan, self.model, self.speed = plan, model, 1e12 * tflops
        spec = plan.model(model)
        network = clip.build(spec["architecture"])
        self.weights = FLOAT * sum(parameter.numel() for parameter in network.parameters())
        self.trainable = FLOAT * sum(parameter.numel() for parameter in network.visual.parameters())
        text = sum(p.numel() for name, p in network.named_parameters() if name.startswith("transformer."))
        self.prompt = 2 * text * network.context_length
        self.recipe, self.side = spec["finetuning"], spec["preprocess"]["size"]
        self.image = flops(spec["architecture"], self.side)

    def _images(self, images: float, models: float, side: float) -> float:
        """Images through the network, or read from the disk, whatever takes longer."""
        return max(images * models * self.image / self.speed, 3 * side**2 * images / DISK)

    def loading(self, node: Node, way: Way) -> float:
        """Before a job's own work begins."""
        if node.kind not in STEPS:
            return FORK if way.start == FORK else 1.0
        return way.start + CUDA + self.weights / DISK

    def working(self, node: Node, threads: int) -> float:
        params = node.params
        if node.kind == "examples":
            copied = params["task"] in KEPT
            return counts(params["task"])[params["split"]] * (COPYING if copied else DECODING) / threads
        if node.kind == "head":
            return len(params["classes"]) * len(params["templates"]) * self.prompt / self.speed
        if node.kind == "checkpoint":
            images = self.recipe["iterations"] * self.recipe["batch_size"]
            return self._images(images, 3, self.side * TRAINING_MARGIN)
        if node.kind in ("evaluation", "task_evaluation"):
            tasks = params.get("tasks") or [params["task"]]
            validation, test = (sum(counts(task)[split] for task in tasks) for split in ("validation", "test"))
            tried = len(params.get("grid", [1.0]))
            return self._images(validation, tried, self.side) + self._images(test, 1, self.side)
        read = sum(map(len, node.inputs.values()))
        return self.trainable * (read + 1) / DISK if node.kind != "pretrained" else 2 * self.weights / DISK


def run(
    jobs: Mapping[str, Node], timing: Timing, way: Way, cores: int, gpus: int
) -> tuple[float, float, list[tuple[str, float]]]:
    """Seconds of all jobs, seconds that GPUs are busy, and the chain of jobs that ended last: path and seconds.

    A job that waited for an input, for cores or for a GPU follows the job that ended when it began.
    """
    waiting, done = dict(jobs), set[str]()
    free = {"cores": cores, "gpus": gpus}
    running: list[tuple[float, str, int, int]] = []
    after: dict[str, str] = {}
    lasted: dict[str, float] = {}
    now, busy, last = 0.0, 0.0, ""
    while waiting or running:
        for path, node in list(waiting.items()):
            if path not in waiting or not all(needed.path in done for needed in _needed(node)):
                continue
            given = timing.plan.resources(timing.model, STEPS.get(node.kind, "arrays"))
            threads, gpu = min(way.threads or given["threads"], cores), given["gpu"]
            if threads > free["cores"] or gpu > free["gpus"]:
                continue
            seconds = timing.loading(node, way) + timing.working(waiting.pop(path), threads)
            after[path], lasted[path] = last, seconds
            free["cores"] -= threads
            free["gpus"] -= gpu
            busy += gpu * seconds
            heapq.heappush(running, (now + seconds, path, threads, gpu))
        now, ended, threads, gpu = heapq.heappop(running)
        free["cores"] += threads
        free["gpus"] += gpu
        done.add(ended)
        last = ended
    chain = []
    while last:
        chain.append((last, lasted[last]))
        last = after[last]
    return now, busy, chain[::-1]


def _needed(node: Node) -> list[Node]:
    return [needed for nodes in node.inputs.values() for needed in nodes]


def print_plan(plan: Plan, model: str, benchmark: str, tflops: float, cores: int, gpus: int) -> None:
    tops = [node for nodes in results_of(plan, model, benchmark, plan.seeds[0]).values() for node in nodes]
    jobs = {node.path: node for top in tops for node in top.walk()}
    jobs = dict(sorted(jobs.items(), key=lambda item: (_ORDER.index(item[1].kind), item[0])))
    timing = Timing(plan, model, tflops)
    using = sum(plan.resources(model, STEPS.get(node.kind, "arrays"))["gpu"] > 0 for node in jobs.values())
    print(f"{model}, {benchmark}, {cores} cores, {gpus} GPU: {len(jobs)} jobs, {using} of them on a GPU; computed")
    for way in WAYS:
        seconds, busy, chain = run(jobs, timing, way, cores, gpus)
        print(f"  {way.name}: {seconds / 60:.0f} min, the GPU busy for {busy / seconds / gpus:.0%}")
        print(f"    the chain that decides it: {_told(chain, jobs)}")


_ORDER = (
    *("pretrained", "head", "checkpoint", "task_evaluation", "evaluation", "task_vector", "multi_task_vector"),
    *("mask_bundle", "agreement", "examples"),
)
"""Which of several jobs that could start does so: those for the GPU, then arrays, then decoding."""


def _told(chain: list[tuple[str, float]], jobs: Mapping[str, Node]) -> str:
    """How many jobs of each stage are in a chain, and their minutes."""
    stages = list(dict.fromkeys(jobs[path].kind for path, _ in chain))
    seconds = {stage: [time for path, time in chain if jobs[path].kind == stage] for stage in stages}
    return ", ".join(f"{len(times)} {stage} ({sum(times) / 60:.1f} min)" for stage, times in seconds.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=100.0, help="what the GPU sustains")
    parser.add_argument("--plan", nargs=2, metavar=("MODEL", "BENCHMARK"), help="the jobs of one table in time")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=1)
    arguments = parser.parse_args()
    tflops, plan = arguments.tflops, open_plan()
    if arguments.plan:
        print_plan(plan, *arguments.plan, tflops, arguments.cores, arguments.gpus)
        return
    benchmarks = {name: plan.tasks(name) for name in ("8tasks", "14tasks", "20tasks")}
    size = plan.model("vit_b32")["preprocess"]["size"]
    for name, tasks in benchmarks.items():
        splits = itertools.product(tasks, ("train", "validation", "test"))
        decoded = sum(example_bytes({"task": task, "split": split, "side": size}) for task, split in splits)
        print(f"{name}: decoded images {decoded / 1e9:.0f} GB, shared by all models")
    for model in ("vit_b32", "vit_b16", "vit_l14"):
        spec, grids = plan.model(model), plan.grids(model)
        recipe, network = spec["finetuning"], clip.build(spec["architecture"])
        every = sum(parameter.numel() for parameter in network.parameters())
        trainable = sum(parameter.numel() for parameter in network.visual.parameters())
        del network
        image, images_at_once = flops(spec["architecture"], size), at_once(spec)
        state, kept = state_bytes(spec)["cuda"], kept_bytes(spec, images_at_once)
        step = 3 * image * recipe["batch_size"]
        print(
            f"{model}: one image {image / 1e9:.1f} GFLOP forward; fine-tuning {state / 1e9:.1f} GB of GPU memory "
            f"between two steps, and {kept / 1e9:.1f} GB for a pass over {images_at_once} images, "
            f"{recipe['iterations'] * step / 1e12 / tflops / 60:.0f} min a task"
        )
        for benchmark, tasks in benchmarks.items():
            vectors, merges = len(tasks), 3
            masks = 2 * (len(grids["mask_lambda"]).bit_length() * vectors / 8 + 1) * trainable
            store = FLOAT * (every + (2 * vectors + merges) * trainable) + masks
            images = evaluated_images(tasks, len(grids["scaling_coefficient"]), len(grids["mask_lambda"]))
            print(
                f"  {benchmark}: store {store / 1e9:.0f} GB; fine-tuning "
                f"{len(tasks) * recipe['iterations'] * step / 1e12 / tflops / 3600:.1f} h, evaluation of "
                f"{images / 1e6:.1f} million images x models {images * image / 1e12 / tflops / 3600:.1f} h"
            )


if __name__ == "__main__":
    main()
