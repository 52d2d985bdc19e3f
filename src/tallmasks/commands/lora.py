"""Write what fine-tuning changed as a PEFT LoRA folder, by a randomised singular value decomposition.

    tallmasks lora --base ./base ./cars --rank 16 -o ./cars-lora

Each changed matrix gets nearly the nearest B A of the rank, in the Frobenius norm.  Embeddings, biases and norms are
left out.  The command prints how much of the change is lost by both.  Matrices are taken one at a time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from tallmasks.bundles.bundle_models import open_model
from tallmasks.commands.given_checkpoints import new_path
from tallmasks.commands.progress import WorkProgress
from tallmasks.store.atomic_files import whole
from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import expanded
from tallmasks.store.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import check_fit, unchanged
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES, EMBEDDINGS, PREFIX

_TRANSPOSED = ("gpt2", "openai-gpt")
"""Kinds of models whose layers hold their weights with the inputs first."""
_DIRECTIONS = 3
"""Directions that are looked at for each one kept."""
_POWERS = 8
"""Rounds; of a matrix of noise, the worst case, these leave the error 0.03 % above the least."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=expanded, metavar="CHECKPOINT", help="the fine-tuned model")
    parser.add_argument("--base", type=expanded, required=True, help="the model that it was fine-tuned from")
    parser.add_argument("--rank", type=int, default=16, help="of every B A; 16")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="a new folder")


def run(arguments: argparse.Namespace) -> int:
    """Write the folder, and print the error."""
    output, base = new_path(arguments.output), open_model(arguments.base)
    model = open_model(arguments.model, base)
    check_fit(base, {"the model": model})
    if arguments.rank < 1:
        raise TallmasksError(f"--rank {arguments.rank}: expected a whole number from 1 up")
    if (kind := base.config.get("model_type")) in _TRANSPOSED:
        raise TallmasksError(f"{base.title}: a {kind}, whose layers are no nn.Linear; no LoRA is written of it")
    same = set(unchanged(base, [model]))
    changed = [name for name in base.layout.names if name not in same]
    matrices = [name for name in changed if _is_linear(name, base)]
    if not matrices:
        raise TallmasksError(
            f"{model.title}: no matrix of a layer differs from {base.title}; there is nothing to write"
        )
    factors: dict[str, np.ndarray] = {}
    kept, total = 0.0, 0.0
    with WorkProgress("decomposing", sum(base.info(name).size for name in changed)) as progress:
        for name in changed:
            info = base.info(name)
            delta = model.difference(base, name, 0, info.size).reshape(info.shape)
            total += float(np.square(delta, dtype=np.float64).sum())
            if name in matrices:
                module = PREFIX + name.removesuffix(".weight")
                b, a, length = low_rank_factors(delta, arguments.rank)
                factors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
                kept += length
            progress.add(info.size)
    _write(output, factors, arguments.rank, matrices, base)
    lost = max(1 - kept / total, 0.0) ** 0.5
    print(f"{output}: {len(matrices)} matrices of rank {arguments.rank}; relative error of the whole change {lost:.2%}")
    if rest := [name for name in changed if name not in matrices]:
        print(f"  left out, and in the error: {name_some(rest)} ({len(rest)} tensors)")
    return 0


def low_rank_factors(delta: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, float]:
    """B [m, rank] and A [rank, n], float32; zeros beyond min(m, n).  B A is near the best approximation of delta,
    float32 [m, n], of the rank: Halko et al. 2011, algorithm 4.4, from directions drawn with the seed 0.  Last, the
    squared Frobenius norm of B A; that of delta - B A is the rest of delta's, since B A is a projection of delta."""
    draw = np.random.default_rng(0)
    span = draw.standard_normal((delta.shape[1], min(_DIRECTIONS * rank, *delta.shape)), dtype=np.float32)
    for _ in range(_POWERS):
        span = np.linalg.qr(delta.T @ np.linalg.qr(delta @ span)[0])[0]
    left, singular, right = np.linalg.svd(delta @ span, full_matrices=False)
    count = min(rank, singular.size)
    b, a = np.zeros((delta.shape[0], rank), np.float32), np.zeros((rank, delta.shape[1]), np.float32)
    root = np.sqrt(singular[:count])
    b[:, :count], a[:count] = left[:, :count] * root, root[:, None] * (right[:count] @ span.T)
    return b, a, float(np.square(singular[:count], dtype=np.float64).sum())


def _is_linear(name: str, base: Checkpoint) -> bool:
    """Whether a tensor is the weight of a linear layer."""
    module = name.removesuffix(".weight").split(".")[-1]
    tied = name in base.aliases.values()
    return name.endswith(".weight") and len(base.info(name).shape) == 2 and module not in EMBEDDINGS and not tied


def _write(output: Path, factors: dict[str, np.ndarray], rank: int, matrices: list[str], base: Checkpoint) -> None:
    from safetensors.numpy import save

    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base.origin.get("repository", base.title),
        "r": rank,
        "lora_alpha": rank,
        "target_modules": [name.removesuffix(".weight") for name in matrices],
        "bias": "none",
        "lora_dropout": 0.0,
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
        "task_type": None,
    }
    with whole(output, folder=True, new=True) as place:
        (place / ADAPTER_FILES[0]).write_bytes(save(factors, metadata={"format": "pt"}))
        (place / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n")
