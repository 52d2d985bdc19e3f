"""Pretraining of the tiny T5 on the written world: texts with gaps, texts to continue, and plain questions.

Every text begins with the marker of its dialect.  The wordings of the tasks are not used.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import T5ForConditionalGeneration

from reproduction.models.language.text_batches import IGNORED
from reproduction.models.language.text_tokenizer import TENSOR, TextTokenizer
from reproduction.models.pretrained_files import write_pretrained
from reproduction.models.t5.t5_architectures import TABLES, Architecture
from reproduction.models.t5.t5_network import network_of
from reproduction.training.finetuning import plateau_schedule, progress_at
from tiny_worlds.written.documents import Pair, begun, problem, with_gaps
from tiny_worlds.written.lexicon import tokenizer_json

PROGRESS_EVERY = 100  # steps
Recipe = Mapping[str, Any]
"""`pretraining` of a model's entry in params.yaml."""


def pretrain_tiny_t5(config: Mapping[str, Any], output: Path) -> None:
    """Pretrain the tiny T5 from scratch, in one thread, and write its weights.

    In ``config["pretraining"]``, `problem_share` is the fraction of steps with plain questions, `gap_share` the
    fraction of the other texts that have gaps, `decay_share` the fraction of steps with a falling learning rate.
    """
    recipe, tokenizer = config["pretraining"], tokenizer_json()
    network = initial(config["architecture"], recipe["seed"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        train_t5(network, recipe, TextTokenizer(tokenizer.encode(), output, network.config.vocab_size))
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    shapes = Architecture.of(config["architecture"]).shapes
    tensors = {name: tensor for name, tensor in network.state_dict().items() if name in shapes}
    tensors[TENSOR] = torch.frombuffer(bytearray(tokenizer.encode()), dtype=torch.uint8)
    write_pretrained(tensors, config, output)


def initial(architecture: Mapping[str, Any], seed: int) -> T5ForConditionalGeneration:
    """A T5 without dropout, with random weights.

    Standard deviations are T5's except for the two tables.  T5's own are meant for longer trainings: initial logits are
    about 10, and embeddings are much larger than the layers' outputs.
    """
    sizes, generator = Architecture.of(architecture), torch.Generator().manual_seed(seed)

    def drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if "norm" in name:
            return torch.ones(shape)
        if name in TABLES:
            spread = {"shared.weight": 0.3, "lm_head.weight": 0.05}[name]
        elif "relative_attention_bias" in name:
            spread = sizes.d_model**-0.5
        else:
            spread = (shape[1] * (sizes.d_kv if ".q." in name else 1)) ** -0.5
        return torch.empty(shape).normal_(0, spread, generator=generator)

    network = network_of(sizes, {name: drawn(name, shape) for name, shape in sizes.shapes.items()}).eval()
    network.config.decoder_start_token_id = network.config.pad_token_id
    return network


def pairs(recipe: Recipe, step: int) -> list[Pair]:
    """The texts of a step; all or none are questions, so that lengths are similar."""
    rng = np.random.default_rng((recipe["seed"], step))
    if rng.random() < recipe["problem_share"]:
        return [problem(rng) for _ in range(recipe["batch_size"])]
    return [with_gaps(rng) if rng.random() < recipe["gap_share"] else begun(rng) for _ in range(recipe["batch_size"])]


def train_t5(network: T5ForConditionalGeneration, recipe: Recipe, tokenizer: TextTokenizer) -> None:
    parameters = [*network.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=recipe["learning_rate"], betas=recipe["betas"], weight_decay=recipe["weight_decay"], fused=True
    )
    start, losses, right, asked = time.monotonic(), 0.0, 0, 0
    for step in range(1, recipe["steps"] + 1):
        rows = [[torch.tensor(row) for row in tokenizer(texts)] for texts in zip(*pairs(recipe, step), strict=True)]
        inputs = pad_sequence(rows[0], batch_first=True)
        targets = pad_sequence(rows[1], batch_first=True, padding_value=IGNORED)
        output = network(input_ids=inputs, attention_mask=inputs != 0, labels=targets)
        optimizer.zero_grad()
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, recipe["clip_norm"])
        for group in optimizer.param_groups:
            share = plateau_schedule(step, recipe["steps"], recipe["warmup_steps"], recipe["decay_share"])
            group["lr"] = recipe["learning_rate"] * share
        optimizer.step()
        losses += output.loss.item() / PROGRESS_EVERY
        right += int((output.logits.argmax(dim=-1) == targets)[:, 0].sum())
        asked += len(targets)
        if step % PROGRESS_EVERY == 0:
            line = progress_at(step, recipe["steps"], recipe["batch_size"], losses, start)
            print(f"{line}  right first words {100 * right / asked:.1f} %", flush=True)
            losses, right, asked = 0.0, 0, 0
