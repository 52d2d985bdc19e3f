"""Pretraining of the tiny T5 on texts of the written world: gaps, continuations, and plain problems.

Every text begins with the marker of its dialect.  The tasks' own wordings do not occur, so zero-shot accuracy is that
of a model that has never read them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tallmasks.models.pretrained_files import write_pretrained
from tallmasks.tasks.written.documents import Pair, begun, problem, with_gaps
from tallmasks.tasks.written.lexicon import END, lexicon, tokenizer_json
from tallmasks.training.finetuning import plateau_schedule, progress_at
from tallmasks.training.plain_t5 import PlainT5

PROGRESS_EVERY = 100  # steps
TOKENIZER = "tokenizer.json"
IGNORED = -100  # the label of padding


@dataclass(frozen=True)
class TinyT5Recipe:
    """Everything that decides a pretraining.

    Attributes:
        problem_share: Share of the steps with plain problems; the others are on texts.
        gap_share: Share of the texts that have gaps; the others are to be continued.
        steps: Optimizer steps.
        batch_size: Texts per step.
        learning_rate: Plateau of the schedule.
        decay_share: Last share of the steps, over which the learning rate falls linearly to 0.
        clip_norm: Largest norm of the whole gradient.
        seed: Of the texts and the initial weights.
    """

    problem_share: float
    gap_share: float
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    decay_share: float
    weight_decay: float
    betas: tuple[float, float]
    clip_norm: float
    seed: int

    @classmethod
    def of(cls, knobs: Mapping[str, Any]) -> "TinyT5Recipe":
        """The recipe from its mapping in params.yaml."""
        return cls(**{**knobs, "betas": tuple(knobs["betas"])})


def pretrain_tiny_t5(config: Mapping[str, Any], output: Path) -> None:
    """Pretrain the tiny T5 of an entry in params.yaml from nothing, in one thread, and write the file that ships."""
    recipe = TinyT5Recipe.of(config["pretraining"])
    network = PlainT5(config["architecture"], recipe.seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        train(network, recipe)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    tensors = {name: tensor.detach().clone() for name, tensor in network.tensors.items()}
    tensors[TOKENIZER] = torch.frombuffer(bytearray(tokenizer_json().encode()), dtype=torch.uint8)
    write_pretrained(tensors, config, output)


class Tokenize:
    """Texts as padded tokens."""

    def __init__(self) -> None:
        self._numbers = {word: number for number, word in enumerate(lexicon())}

    def __call__(self, texts: list[str], padding: int = 0) -> torch.Tensor:
        """int64 [N, longest], each text with its end of sequence."""
        rows = [[self._numbers[word] for word in (*text.split(), END)] for text in texts]
        tokens = np.full((len(rows), max(map(len, rows))), padding)
        for row, numbers in enumerate(rows):
            tokens[row, : len(numbers)] = numbers
        return torch.from_numpy(tokens)


def pairs(recipe: TinyT5Recipe, step: int) -> list[Pair]:
    """The texts of a step: all of them problems, or none, so that they are about equally long."""
    rng = np.random.default_rng((recipe.seed, step))
    if rng.random() < recipe.problem_share:
        return [problem(rng) for _ in range(recipe.batch_size)]
    return [with_gaps(rng) if rng.random() < recipe.gap_share else begun(rng) for _ in range(recipe.batch_size)]


def train(network: PlainT5, recipe: TinyT5Recipe) -> None:
    """Train a network in place, and print progress."""
    tokenize, gradient = Tokenize(), network.flat.grad
    assert gradient is not None
    optimizer = torch.optim.AdamW(
        [network.flat], lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True
    )
    start, losses, right, asked = time.monotonic(), 0.0, 0, 0
    for step in range(1, recipe.steps + 1):
        texts = pairs(recipe, step)
        inputs, targets = tokenize([text for text, _ in texts]), tokenize([text for _, text in texts], IGNORED)
        logits = network.logits(inputs, functional.pad(targets.clamp(min=0), (1, -1)))
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        gradient.zero_()
        loss.backward()
        gradient *= min(1.0, recipe.clip_norm / float(gradient.norm() + 1e-12))
        for group in optimizer.param_groups:
            share = plateau_schedule(step, recipe.steps, recipe.warmup_steps, recipe.decay_share)
            group["lr"] = recipe.learning_rate * share
        optimizer.step()
        losses += loss.item() / PROGRESS_EVERY
        right += int((logits.argmax(dim=-1) == targets)[:, 0].sum())
        asked += len(targets)
        if step % PROGRESS_EVERY == 0:
            line = progress_at(step, recipe.steps, recipe.batch_size, losses, start)
            print(f"{line}  right first words {100 * right / asked:.1f} %", flush=True)
            losses, right, asked = 0.0, 0, 0
