"""Fine-tuning: the visual tower moves, the zero-shot head stays frozen."""

import math
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from tallmasks.errors import TallmasksError
from tallmasks.models import Model

PROGRESS_EVERY = 10  # steps


@dataclass(frozen=True)
class Augmentation:
    """How far a training image may be changed at random.

    Attributes:
        rotation: Degrees to either side.
        scale: Share of the size, larger or smaller.
        shift: Share of half the image side, in both directions.
        brightness: Change of contrast (share) and of brightness (in units where an image spans -1 to 1).
        noise: Largest standard deviation of the pixel noise, same units.
    """

    rotation: float
    scale: float
    shift: float
    brightness: float
    noise: float


@dataclass(frozen=True)
class FinetuneConfig:
    """Everything that decides a fine-tuning, one setting for all tasks.

    Attributes:
        iterations: Optimizer steps.
        batch_size: Images per step.
        learning_rate: Peak of the cosine schedule.
        warmup_iterations: Steps of linear growth up to the peak.
        weight_decay: Of AdamW.
        epsilon: Of AdamW. Where it is large against a weight's gradient, that weight hardly moves.
        clip_norm: Largest norm of the whole gradient.
        seed: Of the order of the images and of their augmentation, together with the task's name.
        augmentation: Random changes of the training images.
    """

    iterations: int
    batch_size: int
    learning_rate: float
    warmup_iterations: int
    weight_decay: float
    epsilon: float
    clip_norm: float
    seed: int
    augmentation: Augmentation


@dataclass(frozen=True)
class Progress:
    """Where a training stands after some step."""

    step: int
    steps: int
    loss: float
    images_per_second: float
    seconds_left: float

    def __str__(self) -> str:
        return (
            f"step {self.step}/{self.steps}  loss {self.loss:.4f}  "
            f"{self.images_per_second:.0f} images/s  {self.seconds_left:.0f} s left"
        )


@dataclass(frozen=True)
class FinetuneResult:
    """A fine-tuned checkpoint and how it came about.

    Attributes:
        checkpoint: The trainable tensors by name, float32.
        curve: Rows (step, learning rate, loss), one per step.
    """

    checkpoint: dict[str, NDArray[np.float32]]
    curve: tuple[tuple[int, float, float], ...]


def finetune(
    model: Model,
    task: str,
    head: NDArray[np.float32],
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    config: FinetuneConfig,
    report: Callable[[Progress], None] = lambda progress: None,
) -> FinetuneResult:
    """Fine-tune a model on one task with cross-entropy against its frozen zero-shot head.

    The model is changed in place. The result depends on the arguments alone: no global random state is read, and the
    number of threads is whatever the caller has set.

    Args:
        model: The pretrained model.
        task: Name of the task; with the seed it decides the order of the images.
        head: The zero-shot head [C, D].
        images: Training images [N, H, W, 3].
        labels: Their labels [N].
        config: The recipe.
        report: Called every few steps.

    Raises:
        TallmasksError: If the loss stops being a finite number.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(f"{config.seed} {task}".encode()))
    prepared, answers, classes = model.prepare(images), torch.from_numpy(labels), torch.from_numpy(head)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, eps=config.epsilon
    )
    batches = shuffled_batches(len(answers), config.batch_size, generator)
    curve: list[tuple[int, float, float]] = []
    start = time.monotonic()
    for step in range(1, config.iterations + 1):
        batch = next(batches)
        rate = config.learning_rate * cosine_schedule(step, config.iterations, config.warmup_iterations)
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model.logits(augment(prepared[batch], config.augmentation, generator), classes)
        loss = functional.cross_entropy(logits, answers[batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        curve.append((step, rate, loss.item()))
        if not math.isfinite(curve[-1][-1]):
            raise TallmasksError(
                f"Fine-tuning on {task!r}: the loss is {curve[-1][-1]} at step {step}. Lower `learning_rate` "
                f"(now {config.learning_rate})."
            )
        if step % PROGRESS_EVERY == 0 or step == config.iterations:
            report(progress_at(step, config.iterations, config.batch_size, curve[-1][-1], start))
    return FinetuneResult(model.named_arrays(), tuple(curve))


def cosine_schedule(step: int, steps: int, warmup: int) -> float:
    """Share of the peak learning rate at a step (the first is 1): linear warm-up, then half a cosine down to 0."""
    if step <= warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps + 1 - warmup)))


def shuffled_batches(count: int, batch_size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Indices of full batches, int64 [batch size], without end: every example once before any comes again."""
    waiting = torch.empty(0, dtype=torch.int64)
    while True:
        while len(waiting) < batch_size:
            waiting = torch.cat([waiting, torch.randperm(count, generator=generator)])
        yield waiting[:batch_size]
        waiting = waiting[batch_size:]


def augment(images: torch.Tensor, limits: Augmentation, generator: torch.Generator) -> torch.Tensor:
    """Every image [N, 3, H, W] rotated, scaled, shifted, relit and made noisy by its own random amounts."""
    count = len(images)

    def spread(limit: float) -> torch.Tensor:
        return (2 * torch.rand(count, generator=generator) - 1) * limit

    turn, zoom = spread(math.radians(limits.rotation)), 1 + spread(limits.scale)
    cos, sin = turn.cos() * zoom, turn.sin() * zoom
    affine = torch.stack([cos, -sin, spread(limits.shift), sin, cos, spread(limits.shift)], dim=1).view(count, 2, 3)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    relit = moved * (1 + spread(limits.brightness)).view(-1, 1, 1, 1) + spread(limits.brightness).view(-1, 1, 1, 1)
    strength = torch.rand(count, 1, 1, 1, generator=generator) * limits.noise
    return relit + strength * torch.randn(images.shape, generator=generator)


def progress_at(step: int, steps: int, batch_size: int, loss: float, start: float) -> Progress:
    """Progress after a step of a training that began at ``start`` on the monotonic clock."""
    elapsed = max(time.monotonic() - start, 1e-9)
    return Progress(step, steps, loss, step * batch_size / elapsed, elapsed / step * (steps - step))
