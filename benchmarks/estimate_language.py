"""What the T5 models of params.yaml will need: disk, GPU memory, arithmetic.  Computed, not measured on a GPU.

    python benchmarks/estimate_language.py [--tflops 100] [--float32-tflops 15] [--input-tokens 128]
        [--answer-tokens 8] [--choices 3]

- Disk from the shapes of what the chain stores for one benchmark and one seed: checkpoints, task vectors, merged
  vectors, mask bundles, agreements; and of an unfinished training: weights, both moments of AdamW, the best weights.
- Memory of a fine-tuning between two steps, on the GPU and on the CPU: every tensor that the model and the optimizer
  hold after one step, on torch's fake GPU, whose tensors have shapes and no values.  On the CPU come the best weights
  of early stopping, and weights and moments while they are saved.
- GPU memory of a pass: what the backward pass keeps of it, counted on the CPU in the precision of params.yaml,
  bfloat16 copies of the weights among it (tallmasks.training.gpu_memory).  Kernels need more; nobody counted it.
- Operations of a pass: what torch dispatches in a forward and backward pass, counted on tensors without values.  Passes
  of a step: a batch of inputs of one length, cut as in training; before, it was cut into micro_batch_size examples.
- Arithmetic: 2 operations a weight and token of the half that reads it, three times that for a training step, for the
  numbers of rows that the data sets have; how many tokens an input, an answer, and how many choices a question has on
  average is assumed, and said above.  A training is counted to its last step, which early stopping seldom reaches, and
  so are its looks at validation data.  ROPES' answers are counted as if each had max_new_tokens, a pass of the decoder
  for every token of a batch; those of test data are written a second time, for the score that does not count.
  Hours are that by what a GPU sustains (not its peak): --tflops in bfloat16, --float32-tflops in strict float32,
  in which T5 is evaluated.
"""

import argparse
import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tallmasks import methods
from tallmasks.models.families import family
from tallmasks.models.language.text_batches import TextBatch, TokenizedText
from tallmasks.models.t5.t5_architectures import Architecture
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import open_plan
from tallmasks.tasks.text.text_tasks import TASKS
from tallmasks.training.gpu_memory import at_once, kept_bytes, state_bytes

FLOAT = 4  # bytes of a value
MODELS = ("t5_large", "t5_large_ia3")
BENCHMARKS = ("7nlp", "8qa", "11nlp")
LENGTHS = (100, 128, 300, 512)  # tokens of an input


class _Operations(TorchDispatchMode):
    """Counts torch's operations that are no views."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.namespace == "aten" and not function.is_view
        return function(*args, **(kwargs or {}))


def with_inputs_of(spec: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """A model whose largest inputs have so many tokens."""
    return {**spec, "scoring": {**spec["scoring"], "max_input_tokens": tokens}}


def operations_of_a_pass(spec: Mapping[str, Any]) -> int:
    """Torch's operations in one forward and backward pass; they do not depend on the number of examples."""
    with FakeTensorMode():
        model, batch = family(spec).outline(with_inputs_of(spec, 100), 2)  # type: ignore[attr-defined]
        model.parameters()
        model.train(True)
        with _Operations() as operations:
            model.loss(batch).backward()
    return operations.count


def passes(spec: Mapping[str, Any], tokens: int) -> int:
    """Passes of one step, if all inputs have so many tokens."""
    example = TokenizedText([0] * tokens, ([0],), 0)
    longest = spec["scoring"]["max_input_tokens"]
    batch = TextBatch((example,) * spec["finetuning"]["batch_size"], 0, torch.device("cpu"), longest)
    return len(batch.split(at_once(spec)))


def halves(architecture: Architecture) -> tuple[int, int]:
    """Weights that every token of an input, and of an answer, goes through."""
    sizes = {name: math.prod(shape) for name, shape in architecture.shapes.items()}
    encoder = sum(size for name, size in sizes.items() if name.startswith("encoder."))
    decoder = sum(size for name, size in sizes.items() if name.startswith("decoder."))
    return encoder, decoder + sizes["lm_head.weight"]


def questions(method: str, task: str, tried: Mapping[type, int]) -> int:
    """How many questions of a task an evaluation of a method answers."""
    sets, test = tried.get(type(methods.get(method).protocol), 1), 2 if TASKS[task].free else 1
    return sets * TASKS[task].rows("validation") + test * TASKS[task].rows("test")


def store_bytes(plan: Plan, model: str, trainable: int, tasks: int) -> float:
    """What the chain stores of one benchmark with one seed."""
    rows = [methods.get(name) for name in plan.method_names]
    merges = {row.merge for row in rows if row.merge}
    masked = {row.merge for row in rows if row.merge and isinstance(row.protocol, methods.Masked)}
    counted = {row.merge for row in rows if row.merge and "agreement" in row.needs}
    values = FLOAT * trainable * (2 * tasks + len(merges))
    levels = len(plan.grids(model)["mask_lambda"]).bit_length() / 8
    return values + trainable * tasks * levels * len(masked) + trainable * len(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=100.0, help="that a GPU sustains")
    parser.add_argument("--float32-tflops", type=float, default=15.0, help="that it sustains without tensor cores")
    parser.add_argument("--input-tokens", type=float, default=128.0, help="of an input, on average")
    parser.add_argument("--answer-tokens", type=float, default=8.0, help="of an answer, on average")
    parser.add_argument("--choices", type=float, default=3.0, help="of a question, on average")
    said = parser.parse_args()
    plan = open_plan()
    for model in MODELS:
        spec, grids = plan.model(model), plan.grids(model)
        tried = {methods.Scaled: len(grids["scaling_coefficient"]), methods.Masked: len(grids["mask_lambda"])}
        architecture = Architecture.of(spec["architecture"])
        trainable, frozen = architecture.counts(spec.get("adapter"))
        reads, writes = halves(architecture)
        recipe = spec["finetuning"]
        example = 2 * (reads * said.input_tokens + writes * said.answer_tokens)
        answers = {"chosen": said.answer_tokens * said.choices, "written": spec["scoring"]["max_new_tokens"]}
        question = {kind: 2 * (reads * said.input_tokens + writes * tokens) for kind, tokens in answers.items()}
        looks, held_out = recipe["iterations"] // recipe["validate_every"], TASKS["ropes"].rows("validation")
        training = 3 * example * recipe["batch_size"] * recipe["iterations"]
        speed = said.float32_tflops if spec["evaluation"]["precision"] == "float32" else said.tflops
        memory = state_bytes(spec)
        saved = 3 * FLOAT * trainable
        batch_size, rows = recipe["batch_size"], at_once(spec)
        print(f"{model}: {trainable:,} trainable values, {frozen:,} frozen in the paper's formula")
        print(
            f"  a fine-tuning between two steps: {memory['cuda'] / 1e9:.1f} GB on the GPU; with theta_0 there, "
            f"{(memory['cuda'] + memory['cpu']) / 1e9:.1f} GB"
        )
        print(
            f"  on the CPU: {memory['cpu'] / 1e9:.3f} GB of theta_0, {FLOAT * trainable / 1e9:.3f} GB of best weights"
        )
        print(f"  and {saved / 1e9:.3f} GB while a save is written")
        operations = operations_of_a_pass(spec)
        print(f"  a pass: {operations:,} operations of torch")
        for length in LENGTHS:
            now, before = passes(spec, length), -(-batch_size // rows)
            most = rows * spec["scoring"]["max_input_tokens"] // length
            kept = kept_bytes(with_inputs_of(spec, length), most)
            print(
                f"  inputs of {length} tokens: a pass over {most} keeps {kept / 1e9:.1f} GB; a step has {now} passes, "
                f"{now * operations:,} operations; by {rows} examples, {before} and {before * operations:,}"
            )
        print(f"  state of an unfinished training: {4 * FLOAT * trainable / 1e9:.3f} GB")
        print(f"  a fine-tuning to step {recipe['iterations']}: {training / said.tflops / 1e12 / 3600:.1f} h")
        for kind, answered in question.items():
            minutes = looks * held_out * answered / said.tflops / 1e12 / 60
            print(f"  and {looks} looks at {held_out:,} rows of validation data, answers {kind}: {minutes:.1f} min")
        for benchmark in BENCHMARKS:
            tasks = plan.params["benchmarks"][benchmark]
            asked = {"chosen": 0, "written": 0}
            for method, task in itertools.product(plan.method_names, tasks):
                asked["written" if TASKS[task].free else "chosen"] += questions(method, task, tried)
            hours = {kind: asked[kind] * question[kind] / speed / 1e12 / 3600 for kind in asked}
            print(
                f"  {benchmark}: store {store_bytes(plan, model, trainable, len(tasks)) / 1e9:.3g} GB, evaluations: "
                f"{asked['chosen']:,} answers chosen, {hours['chosen']:.1f} h; {asked['written']:,} written, "
                f"{hours['written']:.1f} h"
            )


if __name__ == "__main__":
    main()
