"""Disk, memory and hours of docs/gpu.md, computed from the architectures' shapes.

    python examples/llms/needs.py [--tasks 5] [--tokens 1e7] [--tflops 100]

Prints one row for each of four bases.  Models are stored in bfloat16.  Hours of `merge` and `export` are those per
value that benchmarks/streaming.py measured on two cores and one disk (docs/benchmarks/streaming_cold.csv), and hours of
`compress` those for T5-large (streaming.csv).  Those of lm_eval are 2 * parameters * tokens floating-point operations
for each measured model.
"""

import argparse
import csv
from pathlib import Path

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

MEASURED = Path(__file__).parents[2] / "docs/benchmarks"
VALUE = 2
"""Bytes of bfloat16."""
BITS = 0.3
"""Of a weight of a task in a bundle, as measured on a sentence encoder with trained heads."""


def llama(width: int, inner: int, layers: int, heads: int, tied: bool) -> LlamaForCausalLM:
    shape = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "vocab_size": 128256}
    return LlamaForCausalLM(
        LlamaConfig(**shape, num_attention_heads=heads, num_key_value_heads=8, tie_word_embeddings=tied)
    )


def gemma(width: int, inner: int, layers: int, heads: int) -> Gemma2ForCausalLM:
    shape = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "vocab_size": 256000}
    return Gemma2ForCausalLM(
        Gemma2Config(**shape, num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=256)
    )


BASES = {
    "meta-llama/Llama-3.2-3B": lambda: llama(3072, 8192, 28, 24, tied=True),
    "meta-llama/Llama-3.1-8B": lambda: llama(4096, 14336, 32, 32, tied=False),
    "google/gemma-2-2b": lambda: gemma(2304, 9216, 26, 8),
    "google/gemma-2-9b": lambda: gemma(3584, 14336, 42, 16),
}


def seconds_per_value(file: str) -> dict[str, float]:
    """Measured seconds per parameter and model that is read, for the last model of a file."""
    with (MEASURED / file).open() as rows:
        return {row["what"]: float(row["wall_ns"]) * 1e-9 for row in csv.DictReader(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5, help="fine-tuned models")
    parser.add_argument("--tokens", type=float, default=1e7, help="that lm_eval sends through one model")
    parser.add_argument("--tflops", type=float, default=100.0, help="that the GPU sustains in bfloat16")
    arguments = parser.parse_args()
    tasks, measured = arguments.tasks, seconds_per_value("streaming.csv") | seconds_per_value("streaming_cold.csv")
    print("| base | parameters, 10⁹ | downloads, GB | merged, GB | bundle, GB | exports, GB | GPU, GB | "
          "merge, h | compress, h | exports, h | lm_eval, h |")  # fmt: skip
    print("|---|" + "---:|" * 10)
    for name, build in BASES.items():
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in build().parameters())
        model = VALUE * count / 1e9
        disk = ((1 + tasks) * model, model, tasks * BITS * count / 8e9, tasks * model, model)
        hours = (
            measured["merge ties"] * tasks * count / 3600,
            measured["compress"] * tasks * count / 3600,
            measured["export"] * tasks * count / 3600,
            (1 + tasks) * 2 * count * arguments.tokens / (arguments.tflops * 1e12) / 3600,
        )
        cells = [f"{count / 1e9:.2f}", *(f"{size:.1f}" for size in disk), *(f"{hour:.2f}" for hour in hours)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
