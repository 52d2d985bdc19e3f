"""Contrastive pretraining of the tiny CLIP on drawn pictures and captions.

A clean picture is captioned with a prompt of its task.  For a picture in the field style the class name is spelled
backwards, so the image features learn the tasks' domain, but no word of a zero-shot head is paired with it.  The
domain shift and the real digits are not used.

Every process draws its own part of the pictures and trains on it; gradients are averaged at every step.  The result
depends on the number of processes, which is recorded in the file's metadata.
"""

import math
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from numpy.typing import NDArray
from open_clip.model import CLIP
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from reproduction.models.clip import network as clip
from reproduction.models.pretrained_files import write_pretrained
from reproduction.models.vision.augmentation import augment
from reproduction.training.finetuning import plateau_schedule, progress_at
from tiny_worlds.drawn import NAMES, TASKS, picture
from tiny_worlds.drawn.canvas import IMAGE_SIDE

PROGRESS_EVERY = 100  # steps
Recipe = Mapping[str, Any]
"""`pretraining` of a model's entry in params.yaml."""


def pretrain_tiny(config: Mapping[str, Any], output: Path, processes: int) -> None:
    """Pretrain the tiny model from scratch and write its weights.

    ``config["pretraining"]`` counts the images and the batch over all processes; the number of processes must divide
    the batch.  `field_share` is the fraction of pictures in the field style, `captions` the number of random captions
    that are added to those of the batch, `decay_share` the fraction of steps with a falling learning rate.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes started below
    with tempfile.TemporaryDirectory() as meeting_point:
        multiprocessing.spawn(
            _worker, args=(processes, f"file://{meeting_point}/store", dict(config), output), nprocs=processes
        )


def _worker(rank: int, processes: int, meeting_point: str, config: Mapping[str, Any], output: Path) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=processes)
    recipe = config["pretraining"]
    images, labels = draw_pairs(recipe, rank, processes)
    captions = all_captions()
    context = config["architecture"]["text_cfg"]["context_length"]
    vocabulary = clip.vocabulary_of((prompt for prompts in captions for prompt in prompts), context)
    tokenize = clip.Tokenizer(vocabulary, context)
    tokens = torch.stack([tokenize(prompts) for prompts in captions])
    torch.manual_seed(recipe["seed"])  # open_clip draws the initial weights from the global generator
    network = clip.build(config["architecture"], len(vocabulary))
    train_clip(network, images, labels, tokens, recipe, rank, processes)
    if rank == 0:
        tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
        tensors[clip.VOCABULARY] = torch.tensor(vocabulary)
        write_pretrained(tensors, {**config, "processes": processes}, output)
    dist.barrier()
    dist.destroy_process_group()


def all_captions() -> list[tuple[str, ...]]:
    """The captions of all classes of all tasks, then the same with the class names spelled backwards."""
    forward, backward = [], []
    for task in TASKS.values():
        for name in task.classes:
            reversed_name = " ".join(word[::-1] for word in name.split())
            forward.append(tuple(template.format(name) for template in task.templates))
            backward.append(tuple(template.format(reversed_name) for template in task.templates))
    return forward + backward


def draw_pairs(recipe: Recipe, rank: int, processes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """This process's pictures, uint8 [N, 32, 32, 3], and their indices in :func:`all_captions`, int64 [N].

    The probability of a task is proportional to the square root of its number of classes.
    """
    class_counts = np.array([len(TASKS[name].classes) for name in NAMES])
    offsets = np.concatenate([[0], class_counts.cumsum()])
    shares = np.sqrt(class_counts) / np.sqrt(class_counts).sum()
    numbers = range(rank, recipe["images"], processes)
    images = np.empty((len(numbers), IMAGE_SIDE, IMAGE_SIDE, 3), dtype=np.uint8)
    labels = np.empty(len(numbers), dtype=np.int64)
    for row, index in enumerate(numbers):
        rng = np.random.default_rng((recipe["seed"], index))
        which = int(rng.choice(len(NAMES), p=shares))
        task = TASKS[NAMES[which]]
        label = int(rng.integers(len(task.classes)))
        field = bool(rng.random() < recipe["field_share"]) and not task.real
        images[row] = picture(task, label, field, rng)
        labels[row] = offsets[which] + label + (offsets[-1] if field else 0)
    return images, labels


def train_clip(
    network: CLIP,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    tokens: torch.Tensor,
    recipe: Recipe,
    rank: int,
    processes: int,
) -> None:
    """Train a network in place; process 0 prints progress.

    Args:
        network: With the same initial weights in every process.
        images: This process's pictures, uint8 [N, 32, 32, 3].
        labels: Index of each picture's caption, int64 [N].
        tokens: All wordings of all captions, int64 [captions, wordings, context length].
    """
    generator = torch.Generator().manual_seed(recipe["seed"] * processes + rank)
    parameters = list(network.parameters())
    gradient = torch.zeros(sum(parameter.numel() for parameter in parameters))
    for parameter, piece in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = piece.view_as(parameter)  # one all-reduce averages all of them
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": recipe["weight_decay"]},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=recipe["learning_rate"],
        betas=recipe["betas"],
        fused=True,
    )
    batch_size, answers = recipe["batch_size"] // processes, torch.from_numpy(labels)
    start, losses, hits = time.monotonic(), 0.0, 0.0
    for step in range(1, recipe["steps"] + 1):
        batch = torch.randint(len(images), (batch_size,), generator=generator)
        pictures = augment(clip.prepare(images[batch.numpy()]), generator, **recipe["augmentation"])
        others = torch.randperm(len(tokens), generator=generator)[: recipe["captions"]]
        bank = torch.unique(torch.cat([answers[batch], others]))
        target = torch.searchsorted(bank, answers[batch])
        wording = torch.randint(tokens.shape[1], (len(bank),), generator=generator)
        # bfloat16 uses the CPU's matrix units; the backward pass of fused attention is slow there
        with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
            shown, worded = network.encode_image(pictures), network.encode_text(tokens[bank, wording])
        logits = functional.normalize(shown.float(), dim=-1) @ functional.normalize(worded.float(), dim=-1).T
        logits = logits * network.logit_scale.exp()
        loss = contrastive_loss(logits, target, recipe["text_to_image_weight"])
        gradient.zero_()
        loss.backward()
        dist.all_reduce(gradient)
        gradient /= processes
        gradient *= min(1.0, recipe["clip_norm"] / float(gradient.norm() + 1e-12))
        for group in optimizer.param_groups:
            share = plateau_schedule(step, recipe["steps"], recipe["warmup_steps"], recipe["decay_share"])
            group["lr"] = recipe["learning_rate"] * share
        optimizer.step()
        with torch.no_grad():
            network.logit_scale.clamp_(0, math.log(recipe["largest_logit_scale"]))
        losses += loss.item() / PROGRESS_EVERY
        hits += float((logits.argmax(dim=1) == target).float().mean()) / PROGRESS_EVERY
        if rank == 0 and step % PROGRESS_EVERY == 0:
            line = progress_at(step, recipe["steps"], recipe["batch_size"], losses, start)
            print(f"{line}  right caption {100 * hits:.1f} %", flush=True)
            losses, hits = 0.0, 0.0


def contrastive_loss(logits: torch.Tensor, target: torch.Tensor, text_to_image_weight: float) -> torch.Tensor:
    """Cross-entropy of the captions given pictures, plus the weighted KL divergence of the pictures given captions.

    The logits are [N, R], picture by caption; ``target`` [N] is the column of each picture's caption.
    """
    to_text = functional.cross_entropy(logits, target)
    own = functional.one_hot(target, logits.shape[1]).T.float()
    present = own.sum(dim=1) > 0
    wanted = own[present] / own[present].sum(dim=1, keepdim=True)
    to_image = functional.kl_div(logits.T[present].log_softmax(dim=1), wanted, reduction="batchmean")
    return to_text + text_to_image_weight * to_image
