"""What the T5 models of params.yaml will need: disk, GPU memory, arithmetic.  Computed, not measured on a GPU.

    python benchmarks/estimate_language.py [--tflops 100] [--input-tokens 128] [--answer-tokens 8] [--choices 3]

- Disk from the shapes of what the chain stores for one benchmark and one seed: checkpoints, task vectors, merged
  vectors, mask bundles, agreements; and of an unfinished training: weights, both moments of AdamW, the best weights.
- GPU memory of a fine-tuning from weights, gradients and moments (16 bytes a trainable value, 4 a frozen one), without
  what the backward pass keeps of a micro batch.
- Arithmetic: 2 operations a weight and token of the half that reads it, three times that for a training step, for the
  numbers of rows that the data sets have; how many tokens an input, an answer, and how many choices a question has on
  average is assumed, and said above.  A training is counted to its last step, which early stopping seldom reaches.
  Hours are that by --tflops, what a GPU sustains (not its peak).
"""

import argparse
import math

from tallmasks import methods
from tallmasks.models.t5.t5_architectures import Architecture
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import open_plan
from tallmasks.tasks.text.text_tasks import TASKS

FLOAT, LEVEL_BITS = 4, 3  # bytes of a value; bits of a mask's level for five lambdas
MODELS = ("t5_large", "t5_large_ia3")
BENCHMARKS = ("7nlp", "8qa", "11nlp")


def halves(architecture: Architecture) -> tuple[int, int]:
    """Weights that every token of an input, and of an answer, goes through."""
    sizes = {name: math.prod(shape) for name, shape in architecture.shapes.items()}
    encoder = sum(size for name, size in sizes.items() if name.startswith("encoder."))
    decoder = sum(size for name, size in sizes.items() if name.startswith("decoder."))
    return encoder, decoder + sizes["lm_head.weight"]


def store_bytes(plan: Plan, trainable: int, tasks: int) -> float:
    """What the chain stores of one benchmark with one seed."""
    rows = [methods.get(name) for name in plan.method_names]
    merges = {row.merge for row in rows if row.merge}
    masked = {row.merge for row in rows if row.merge and isinstance(row.protocol, methods.Masked)}
    counted = {row.merge for row in rows if row.merge and "agreement" in row.needs}
    values = FLOAT * trainable * (2 * tasks + len(merges))
    return values + trainable * tasks * LEVEL_BITS / 8 * len(masked) + trainable * len(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=100.0, help="that a GPU sustains")
    parser.add_argument("--input-tokens", type=float, default=128.0, help="of an input, on average")
    parser.add_argument("--answer-tokens", type=float, default=8.0, help="of an answer, on average")
    parser.add_argument("--choices", type=float, default=3.0, help="of a question, on average")
    said = parser.parse_args()
    plan = open_plan()
    grids = plan.params["grids"]
    tried = {methods.Scaled: len(grids["scaling_coefficient"]), methods.Masked: len(grids["mask_lambda"])}
    for model in MODELS:
        spec = plan.model(model)
        architecture = Architecture.of(spec["architecture"])
        trainable, frozen = architecture.counts(spec.get("adapter"))
        everything = sum(architecture.counts(None))
        reads, writes = halves(architecture)
        recipe = spec["finetuning"]
        example = 2 * (reads * said.input_tokens + writes * said.answer_tokens)
        question = 2 * (reads * said.input_tokens + writes * said.answer_tokens * said.choices)
        training = 3 * example * recipe["batch_size"] * recipe["iterations"]
        memory = 16 * trainable + FLOAT * (everything - trainable)
        print(f"{model}: {trainable:,} trainable values, {frozen:,} frozen in the paper's formula")
        print(f"  GPU memory of a fine-tuning without activations: {memory / 1e9:.1f} GB")
        print(f"  state of an unfinished training: {4 * FLOAT * trainable / 1e9:.3f} GB")
        print(f"  a fine-tuning to step {recipe['iterations']}: {training / said.tflops / 1e12 / 3600:.1f} h")
        for benchmark in BENCHMARKS:
            tasks = plan.params["benchmarks"][benchmark]
            rows = [methods.get(name) for name in plan.method_names]
            sizes = [{split: TASKS[task].rows(split) for split in ("validation", "test")} for task in tasks]
            asked = sum(
                tried.get(type(row.protocol), 1) * sum(size["validation"] for size in sizes)
                + sum(size["test"] for size in sizes)
                for row in rows
            )
            hours = asked * question / said.tflops / 1e12 / 3600
            print(
                f"  {benchmark}: store {store_bytes(plan, trainable, len(tasks)) / 1e9:.3g} GB, "
                f"evaluations {asked:,} questions, {hours:.1f} h"
            )


if __name__ == "__main__":
    main()
