"""Fine-tuning: one loop for every family of models."""

import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.models import cuda
from reproduction.models.families import Batch, Examples, Model, Precision
from reproduction.models.prefetching import prefetched
from reproduction.training.early_stopping import BestSoFar
from reproduction.training.shuffled_batches import ShuffledBatches
from reproduction.training.unfinished import TrainingRun, TrainingState
from tallmasks.errors import TallmasksError

PROGRESS_EVERY = 10  # steps


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """`finetuning` in params.yaml, with the seed and the resources.

    Attributes:
        iterations: The largest number of optimizer steps.
        learning_rate: The peak of the schedule.
        epsilon: AdamW's epsilon; weights with much smaller gradients hardly move.
        seed: Seeds, together with the task's name, the order of the examples, augmentation and dropout.
        schedule: After the warm-up, a cosine decay to 0 or a constant rate.
        warmup_iterations: Steps of linear warm-up.
        clip_norm: The largest norm of the gradient; None for no clipping.
        augmentation: The argument ``changes`` of `Model.prepare`.
        precision: The precision of matrix products; weights and optimizer are float32.
        micro_batch_size: Examples per forward and backward pass (see `Batch.split`); None for the whole batch. Not part
            of recipes, because it affects only rounding (with dropout, also the draws). Halved if the GPU's memory is
            too small.
        validate_every: Steps between two validations; the checkpoint is from the step with the best score. None for no
            validation; the checkpoint is then from the last step.
        patience: The number of validations without improvement after which the training ends; None for never.
    """

    iterations: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    epsilon: float
    seed: int
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_iterations: int = 0
    clip_norm: float | None = None
    augmentation: Mapping[str, Any] | str | None = None
    precision: Precision = "float32"
    micro_batch_size: int | None = None
    validate_every: int | None = None
    patience: int | None = None


@dataclass(frozen=True)
class Progress:
    step: int
    steps: int
    loss: float
    per_second: float
    seconds_left: float
    unit: str = "examples"
    score: float | None = None

    def __str__(self) -> str:
        validated = "" if self.score is None else f"validation {100 * self.score:.2f} %  "
        return (
            f"step {self.step}/{self.steps}  loss {self.loss:.4f}  {validated}"
            f"{self.per_second:.0f} {self.unit}/s  {self.seconds_left:.0f} s left"
        )


@dataclass(frozen=True)
class FinetuneResult:
    """A fine-tuned checkpoint and its training.

    Attributes:
        checkpoint: The trainable tensors by name, float32.
        curve: Rows (step, learning rate, loss), one per step.
        validation: Rows (step, score), one per validation; scores are from 0 to 1.
        step: The step after which the checkpoint was taken.
    """

    checkpoint: dict[str, NDArray[np.float32]]
    curve: tuple[tuple[int, float, float], ...]
    validation: tuple[tuple[int, float], ...] = ()
    step: int = 0

    def curve_csv(self) -> str:
        """One line per step as CSV, with a column for validation scores if there are any."""
        scores = dict(self.validation)
        lines = ["step,learning_rate,loss" + (",validation" if scores else "")]
        for step, rate, loss in self.curve:
            score = [f"{scores[step]:.6g}" if step in scores else ""] if scores else []
            lines.append(",".join([f"{step}", f"{rate:.6g}", f"{loss:.6g}", *score]))
        return "\n".join(lines) + "\n"


def finetune(
    model: Model,
    task: str,
    examples: Examples,
    config: FinetuneConfig,
    report: Callable[[Progress], None] = lambda progress: None,
    state: TrainingState | None = None,
    allowed: NDArray[np.bool_] | None = None,
    unit: str = "examples",
    validation: Examples | None = None,
) -> FinetuneResult:
    """Fine-tune a model on one task, in place.

    The result is deterministic for a fixed number of threads, even if the training is interrupted and continued.

    Args:
        model: The pretrained model.
        task: The task's name, which is part of the random seed.
        report: Called every few steps.
        state: Saves and restores an unfinished training.
        allowed: The weights that can change, bool [P']; None for all.
        unit: The plural noun for the examples in progress lines.
        validation: Validation examples, used if ``config.validate_every`` is set.

    Raises TallmasksError if the loss is not finite, or the GPU's memory is too small for one example or the optimizer.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(f"{config.seed} {task}".encode()))
    optimizer = adamw(model, config.learning_rate, config.weight_decay, config.epsilon)
    at_once = config.micro_batch_size or config.batch_size
    restriction = None if allowed is None else _Allowed(model, allowed)
    best = None
    if validation is not None and config.validate_every is not None:
        best = BestSoFar(validation, config.validate_every, config.patience)
    batches = ShuffledBatches(len(examples), config.batch_size, generator)
    training = TrainingRun(model, optimizer, generator, batches, at_once, best)
    training.is_deterministic = torch.are_deterministic_algorithms_enabled()
    curve, losses = training.curve, list[torch.Tensor]()

    def prepare() -> tuple[Batch, dict[str, torch.Tensor]]:
        """A batch, and the random state after it: at a save, later batches can already be prepared."""
        batch = model.prepare(examples[next(batches).numpy()], config.augmentation, generator)
        return batch, training.draws()

    prepared = prefetched(iter(prepare, None), model.device)
    with state or nullcontext(), _dropout(model, f"{config.seed} {task} dropout"):
        if state:
            state.restore(training)
        first, start = len(curve), time.monotonic()
        for step in range(first + 1, config.iterations + 1):
            at_peak = config.schedule == "constant" and step > config.warmup_iterations
            share = 1.0 if at_peak else cosine_schedule(step, config.iterations, config.warmup_iterations)
            rate = config.learning_rate * share
            for group in optimizer.param_groups:
                group["lr"] = rate
            batch, training.drawn = next(prepared)
            losses.append(_backward(training, batch))
            if restriction:
                restriction.mask_gradients()
            if config.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            with cuda.reporting_out_of_memory("AdamW's moments, which take twice as much as the weights"):
                optimizer.step()
            if restriction:
                restriction.restore_others()
            curve.append((step, rate, math.nan))
            look = best is not None and (step % best.every == 0 or step == config.iterations)
            if step % PROGRESS_EVERY and step != config.iterations and not look:
                continue  # because reading the losses waits for the GPU
            for row, loss in zip(range(step - len(losses), step), torch.stack(losses).tolist(), strict=True):
                curve[row] = (*curve[row][:2], loss)
                if not math.isfinite(loss):
                    raise TallmasksError(
                        f"Fine-tuning on {task!r}: the loss is {loss} at step {row + 1}. Lower `learning_rate` "
                        f"(now {config.learning_rate})."
                    )
            losses.clear()
            score = best.look(model, step, training.at_once) if best and look else None
            last = step if best and best.exhausted else config.iterations
            report(progress_at(step, last, config.batch_size, curve[-1][-1], start, first, unit, score))
            if step == last:
                break
            if state:
                state.save_if_due(training)
    if best is None or best.weights is None:
        return FinetuneResult(model.named_arrays(), tuple(curve), step=len(curve))
    model.flat.copy_(best.weights)
    return FinetuneResult(model.named_arrays(), tuple(curve), tuple(best.curve), best.step)


@contextmanager
def _dropout(model: Model, seed: str) -> Iterator[None]:
    """A context with dropout enabled. Seeds torch's global generators and restores them at the end."""
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(zlib.crc32(seed.encode()))
        model.train(True)
        try:
            yield
        finally:
            model.train(False)


def adamw(model: Model, learning_rate: float, weight_decay: float, epsilon: float) -> torch.optim.AdamW:
    """AdamW. On a GPU the fused version, which needs no temporary copy of the weights."""
    fused = True if model.device.type == "cuda" else None
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay, eps=epsilon, fused=fused)


def _backward(training: TrainingRun, batch: Batch) -> torch.Tensor:
    """Set the gradients of the mean loss over a batch and return the loss.

    If the GPU's memory is too small, repeats the batch with half the micro-batch size and the same dropout. Allows
    operations without a deterministic algorithm, after a message at the first one.
    """
    drawn, step = training.dropout.get_state(), len(training.curve) + 1
    while True:
        try:
            with (
                _deterministic(training.is_deterministic),
                cuda.reporting_out_of_memory("a training pass of one example"),
            ):
                loss = _gradients(training.model, batch, training.at_once)
        except RuntimeError as error:
            if not training.is_deterministic or "does not have a deterministic implementation" not in str(error):
                raise
            training.is_deterministic = False
            (operation, *_) = str(error).split()
            print(f"{operation} has no deterministic algorithm: from step {step} on, rounding can vary", flush=True)
        else:
            if loss is not None:
                return loss
            size, training.at_once = training.at_once, training.at_once // 2
            print(
                f"the GPU's memory is too small for {size} examples per pass; from step {step} on, a pass has "
                f"{training.at_once} examples, and gradients are summed over the same batch",
                flush=True,
            )
            torch.cuda.empty_cache()
        training.dropout.set_state(drawn)


@contextmanager
def _deterministic(on: bool) -> Iterator[None]:
    """Forbid nondeterministic operations. Only then does torch choose its deterministic attention."""
    if on:
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        if on:
            torch.use_deterministic_algorithms(True, warn_only=True)


def _gradients(model: Model, batch: Batch, size: int) -> torch.Tensor | None:
    """Set the gradients of the mean loss, ``size`` examples at a time, and return the loss.

    Returns None if the GPU's memory is too small, or raises torch's error if ``size`` is 1.
    """
    for parameter in model.parameters():
        parameter.grad = None
    total = torch.zeros((), device=model.device)
    try:
        for some in batch.split(size):
            loss = model.loss(some) * (some.weight / batch.weight)
            loss.backward()
            total += loss.detach()
    except torch.OutOfMemoryError:
        if size == 1:
            raise
        return None
    return total


class _Allowed:
    """Keeps all weights that are not in ``allowed``, bool [P'], at their pretrained values."""

    def __init__(self, model: Model, allowed: NDArray[np.bool_]) -> None:
        self._model, self._others = model, torch.from_numpy(~allowed).to(model.device)
        self._pretrained = model.initial()

    def mask_gradients(self) -> None:
        parameters = self._model.parameters()
        pieces = self._others.split([parameter.numel() for parameter in parameters])
        for parameter, others in zip(parameters, pieces, strict=True):
            assert parameter.grad is not None
            parameter.grad.masked_fill_(others.view_as(parameter), 0)

    def restore_others(self) -> None:
        """Undo the weight decay of the other weights, whose gradient is 0."""
        self._model.flat.copy_(torch.where(self._others, self._pretrained, self._model.flat))


def cosine_schedule(step: int, steps: int, warmup: int) -> float:
    """Learning rate as a fraction of the peak at a step (from 1): linear warm-up, then cosine decay to 0."""
    if step <= warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps + 1 - warmup)))


def plateau_schedule(step: int, steps: int, warmup: int, decay_share: float) -> float:
    """Learning rate as a fraction of the peak at a step (from 1): linear warm-up, plateau, linear decay to 0."""
    left = (steps + 1 - step) / (decay_share * steps)
    return min(1.0, step / warmup, left)


def progress_at(
    step: int,
    steps: int,
    batch_size: int,
    loss: float,
    start: float,
    first: int = 0,
    unit: str = "examples",
    score: float | None = None,
) -> Progress:
    """The progress of a training that started, or continued after step ``first``, at the monotonic time ``start``."""
    rate = (step - first) / max(time.monotonic() - start, 1e-9)
    return Progress(step, steps, loss, rate * batch_size, (steps - step) / rate, unit, score)
