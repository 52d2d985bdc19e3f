"""Fine-tuning: the visual tower moves, the zero-shot head stays frozen."""

import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from tallmasks.models import Model, Precision, cuda
from tallmasks.store.errors import TallmasksError
from tallmasks.training.crops import crop_and_resize, random_crops
from tallmasks.training.unfinished import TrainingState

PROGRESS_EVERY = 10  # steps


@dataclass(frozen=True)
class Augmentation:
    """How far a drawn training image may be changed at random.

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
        augmentation: Random changes of the training images; "crop" is open_clip's training transform.
        precision: Of the network's products, which `models.load` is told; weights and optimizer are float32.
        micro_batch_size: Images per forward and backward pass, where a whole batch does not fit into memory; gradients
            are summed up. Without it, all of the batch.
    """

    iterations: int
    batch_size: int
    learning_rate: float
    warmup_iterations: int
    weight_decay: float
    epsilon: float
    clip_norm: float
    seed: int
    augmentation: Augmentation | Literal["crop"]
    precision: Precision = "float32"
    micro_batch_size: int | None = None

    @classmethod
    def of(cls, knobs: Mapping[str, Any], seed: int) -> "FinetuneConfig":
        """The configuration from the plain mapping in params.yaml."""
        changes = knobs["augmentation"]
        augmentation = changes if changes == "crop" else Augmentation(**changes)
        return cls(**{**knobs, "augmentation": augmentation, "seed": seed})


@dataclass(frozen=True)
class TrainingImages:
    """What a task is fine-tuned on.

    Attributes:
        images: uint8 [N, H, W, 3]; may be mapped into memory.
        labels: int64 [N].
        sizes: int32 [N, 2], the height and width of each image before it was made square; None if it always was.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    sizes: NDArray[np.int32] | None = None


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
    data: TrainingImages,
    config: FinetuneConfig,
    report: Callable[[Progress], None] = lambda progress: None,
    state: TrainingState | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> FinetuneResult:
    """Fine-tune a model on one task with cross-entropy against its frozen zero-shot head.

    The model is changed in place. The result depends on the arguments alone: no global random state is read, and the
    number of threads is whatever the caller has set. A training that goes on from a saved state ends with the same
    bits as one that was never interrupted.

    Args:
        model: The pretrained model.
        task: Name of the task; with the seed it decides the order of the images.
        head: The zero-shot head [C, D].
        data: The training images.
        config: The recipe.
        report: Called every few steps.
        state: Where an unfinished training is kept, and goes on from; without it, an interrupted one begins anew.
        allowed: bool [P'], the weights that may change; all of them if None.

    Raises:
        TallmasksError: If the loss stops being a finite number, or the GPU's memory is too small for the batch.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(f"{config.seed} {task}".encode()))
    answers, classes = torch.from_numpy(data.labels), torch.from_numpy(head).to(model.device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, eps=config.epsilon
    )
    part = None if allowed is None else _Part(model, allowed)
    batches = ShuffledBatches(len(answers), config.batch_size, generator)
    curve = state.restore(model, optimizer, generator, batches) if state else []
    losses: list[torch.Tensor] = []
    first, start = len(curve), time.monotonic()
    for step in range(first + 1, config.iterations + 1):
        batch = next(batches)
        rate = config.learning_rate * cosine_schedule(step, config.iterations, config.warmup_iterations)
        for group in optimizer.param_groups:
            group["lr"] = rate
        images = augmented(model, data, batch, config.augmentation, generator)
        losses.append(_backward(model, images, cuda.upload(answers[batch], model.device), classes, config))
        if part:
            part.mask_gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        if part:
            part.restore_others()
        curve.append((step, rate, math.nan))
        if step % PROGRESS_EVERY == 0 or step == config.iterations:  # reading a loss waits for the GPU
            for row, loss in zip(range(step - len(losses), step), torch.stack(losses).tolist(), strict=True):
                curve[row] = (*curve[row][:2], loss)
                if not math.isfinite(loss):
                    raise TallmasksError(
                        f"Fine-tuning on {task!r}: the loss is {loss} at step {row + 1}. Lower `learning_rate` "
                        f"(now {config.learning_rate})."
                    )
            losses.clear()
            report(progress_at(step, config.iterations, config.batch_size, curve[-1][-1], start, first))
            if state and step < config.iterations:
                state.save_if_due(model, optimizer, generator, batches, curve)
    return FinetuneResult(model.named_arrays(), tuple(curve))


def _backward(
    model: Model, images: torch.Tensor, answers: torch.Tensor, head: torch.Tensor, config: FinetuneConfig
) -> torch.Tensor:
    """Set the gradients of the mean loss over a batch, in as many passes as the memory asks for; that loss."""
    for parameter in model.parameters():
        parameter.grad = None
    size = config.micro_batch_size or len(images)
    total = torch.zeros((), device=model.device)
    try:
        for some, right in zip(images.split(size), answers.split(size), strict=True):
            loss = functional.cross_entropy(model.logits(some, head), right) * (len(some) / len(images))
            loss.backward()
            total += loss.detach()
    except torch.OutOfMemoryError:
        raise TallmasksError(
            f"the GPU's memory is too small for {size} images at once; set `micro_batch_size` under `finetuning` in "
            f"params.yaml to {max(1, size // 2)}: gradients are then summed up over the same batch"
        ) from None
    return total


class _Part:
    """The weights that may change, bool [P'], and all others, which stay as they were pretrained."""

    def __init__(self, model: Model, allowed: NDArray[np.bool_]) -> None:
        self._model, self._others = model, torch.from_numpy(~allowed).to(model.device)
        self._pretrained = model.pretrained_flat()

    def mask_gradients(self) -> None:
        parameters = self._model.parameters()
        pieces = self._others.split([parameter.numel() for parameter in parameters])
        for parameter, others in zip(parameters, pieces, strict=True):
            assert parameter.grad is not None
            parameter.grad.masked_fill_(others.view_as(parameter), 0)

    def restore_others(self) -> None:
        """Take back what weight decay did: it moves weights without a gradient too."""
        self._model.flat.copy_(torch.where(self._others, self._pretrained, self._model.flat))


def cosine_schedule(step: int, steps: int, warmup: int) -> float:
    """Share of the peak learning rate at a step (the first is 1): linear warm-up, then half a cosine down to 0."""
    if step <= warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps + 1 - warmup)))


class ShuffledBatches(Iterator[torch.Tensor]):
    """Indices of full batches, int64 [batch size], without end: every example once before any comes again.

    Attributes:
        waiting: The indices that come next, int64.
    """

    def __init__(self, count: int, batch_size: int, generator: torch.Generator) -> None:
        self._count, self._batch_size, self._generator = count, batch_size, generator
        self.waiting = torch.empty(0, dtype=torch.int64)

    def __next__(self) -> torch.Tensor:
        while len(self.waiting) < self._batch_size:
            self.waiting = torch.cat([self.waiting, torch.randperm(self._count, generator=self._generator)])
        batch, self.waiting = self.waiting[: self._batch_size], self.waiting[self._batch_size :]
        return batch


def augmented(
    model: Model,
    data: TrainingImages,
    batch: torch.Tensor,
    augmentation: Augmentation | Literal["crop"],
    generator: torch.Generator,
) -> torch.Tensor:
    """A batch as the network takes it, every image changed at random."""
    images = torch.from_numpy(data.images[batch.numpy()])
    if augmentation != "crop":
        return augment(model.prepare(images), augmentation, generator)
    height, width = images.shape[1:3]
    sizes = torch.tensor([[height, width]]).expand(len(batch), 2)
    if data.sizes is not None:
        sizes = torch.from_numpy(data.sizes[batch.numpy()])
    boxes = random_crops(sizes, generator)
    return model.prepare(
        crop_and_resize(cuda.upload(images, model.device), cuda.upload(boxes, model.device), model.image_size)
    )


def augment(images: torch.Tensor, limits: Augmentation, generator: torch.Generator) -> torch.Tensor:
    """Every image [N, 3, H, W] rotated, scaled, shifted, relit and made noisy by its own random amounts."""
    count = len(images)

    def spread(limit: float) -> torch.Tensor:
        return ((2 * torch.rand(count, generator=generator) - 1) * limit).to(images.device)

    turn, zoom = spread(math.radians(limits.rotation)), 1 + spread(limits.scale)
    cos, sin = turn.cos() * zoom, turn.sin() * zoom
    affine = torch.stack([cos, -sin, spread(limits.shift), sin, cos, spread(limits.shift)], dim=1).view(count, 2, 3)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    relit = moved * (1 + spread(limits.brightness)).view(-1, 1, 1, 1) + spread(limits.brightness).view(-1, 1, 1, 1)
    strength = torch.rand(count, 1, 1, 1, generator=generator) * limits.noise
    return relit + (strength * torch.randn(images.shape, generator=generator)).to(images.device)


def progress_at(step: int, steps: int, batch_size: int, loss: float, start: float, first: int = 0) -> Progress:
    """Progress after a step of a training that began (or went on, after step ``first``) at ``start`` on the monotonic
    clock."""
    rate = (step - first) / max(time.monotonic() - start, 1e-9)
    return Progress(step, steps, loss, rate * batch_size, (steps - step) / rate)
