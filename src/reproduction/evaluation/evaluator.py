"""Counts the correct answers of many weight sets on many tasks.

A weight set is theta_0 + alpha * update, on the model's device. As many weight sets as fit into memory share one
pass over the examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.evaluation.records import SPLITS, Evaluation, Score
from reproduction.models import cuda
from reproduction.models.families import Batch, Examples, Model
from reproduction.models.prefetching import prefetched
from tallmasks.vectors.packed_bits import unpacked

Progress = Callable[[str], None]
Update = NDArray[np.float32] | torch.Tensor

CPU_BYTES = 4 << 30  # memory for weight sets on a CPU
GPU_SHARE = 0.6  # of a GPU's free memory, for weight sets
REPORT_EVERY = 5.0  # seconds


@dataclass(frozen=True)
class TaskData:
    name: str
    splits: Mapping[str, Examples]


class Evaluator:
    """A model with the data of its tasks. All counts are in the order of ``tasks``.

    ``progress`` gets a line of text every few seconds. ``unit`` is the plural noun for the examples in it.
    """

    def __init__(
        self,
        model: Model,
        tasks: Sequence[TaskData],
        batch_size: int = 128,
        progress: Progress = lambda line: None,
        unit: str = "examples",
    ) -> None:
        self.model, self.tasks, self.batch_size = model, tuple(tasks), batch_size
        self._progress, self._unit = progress, unit
        self._pretrained = model.initial()
        self._buffers: list[torch.Tensor] = []

    def totals(self, split: str) -> list[int]:
        return [len(task.splits[split]) for task in self.tasks]

    def scaled(self, split: str, update: Update, scaling_coefficients: Sequence[float]) -> list[list[Score]]:
        """Correct answers of theta_0 + alpha * update for every alpha, [tasks][alphas]. ``update``: float32 [P']."""
        direction = self._on_device(update)
        counts: list[list[Score]] = [[] for _ in self.tasks]
        report = _Report(self._progress, split, self._unit, len(scaling_coefficients) * sum(self.totals(split)))
        sets_at_once = self._sets_at_once()
        for start in range(0, len(scaling_coefficients), sets_at_once):
            sets = [
                torch.add(self._pretrained, direction, alpha=scaling_coefficient, out=self._buffer(index))
                for index, scaling_coefficient in enumerate(scaling_coefficients[start : start + sets_at_once])
            ]
            for index, task in enumerate(self.tasks):
                counts[index] += self._count(task, split, sets, report)
        return counts

    def as_is(self, split: str, weights: Update) -> list[Score]:
        """Correct answers of one weight set, [tasks]. ``weights``: float32 [P']."""
        report = _Report(self._progress, split, self._unit, sum(self.totals(split)))
        return [self._count(task, split, [self._on_device(weights)], report)[0] for task in self.tasks]

    def per_task(self, split: str, updates: Callable[[int], Iterator[Update]], candidates: int) -> list[list[Score]]:
        """Correct answers of theta_0 + update for updates of each task's own, [tasks][candidates].

        ``updates`` maps a task's index to its ``candidates`` updates, float32 [P'].
        """
        report = _Report(self._progress, split, self._unit, candidates * sum(self.totals(split)))
        counts: list[list[Score]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            sets: list[torch.Tensor] = []
            sets_at_once = 0
            for update in updates(index):
                direction = self._on_device(update)
                sets_at_once = sets_at_once or self._sets_at_once()
                sets.append(torch.add(self._pretrained, direction, out=self._buffer(len(sets))))
                if len(sets) == sets_at_once:
                    counts[index] += self._count(task, split, sets, report)
                    sets.clear()
            if sets:
                counts[index] += self._count(task, split, sets, report)
        return counts

    def evaluation(
        self, method: str, correct: Mapping[str, Sequence[Score]], weights: Callable[[int], Update], **chosen: Any
    ) -> Evaluation:
        """The `Evaluation` for correct answers {split: [tasks]}; computes the further scores.

        ``weights`` maps a task's index to its weight set. ``chosen``: the fields of `Evaluation` for chosen values.
        """
        tasks, total = tuple(task.name for task in self.tasks), {split: self.totals(split) for split in SPLITS}
        return Evaluation(method, tasks, total, correct, **chosen, further=self._further(weights))

    def _further(self, weights: Callable[[int], Update]) -> dict[str, list[float | None]]:
        """Further test scores by name, [tasks]; None for a task without that score. See `Model`."""
        score = getattr(self.model, "further_scores", None)
        if score is None:
            return {}
        by_task: list[dict[str, float]] = []
        for index, task in enumerate(self.tasks):
            before = self.model.use(self._on_device(weights(index)))
            by_task.append(score(task.splits["test"], self.batch_size))
            self.model.use(before)
        names = dict.fromkeys(name for scores in by_task for name in scores)
        return {name: [scores.get(name) for scores in by_task] for name in names}

    def built(self, update: Update, scaling_coefficient: float = 1.0) -> torch.Tensor:
        """theta_0 + alpha * update; the next weight set overwrites it."""
        return torch.add(self._pretrained, self._on_device(update), alpha=scaling_coefficient, out=self._buffer(0))

    def to_device(self, array: NDArray) -> NDArray | torch.Tensor:
        """The array on the model's GPU; unchanged if the model is on a CPU."""
        return array if self.model.device.type == "cpu" else torch.from_dlpack(array).to(self.model.device)

    def _on_device(self, update: Update) -> torch.Tensor:
        if isinstance(update, torch.Tensor):
            return update.to(self.model.device)
        # torch.from_numpy warns about read-only arrays
        return torch.from_dlpack(np.ascontiguousarray(update)).to(self.model.device)

    def _sets_at_once(self) -> int:
        device, size = self._pretrained.device, self._pretrained.nbytes
        if device.type != "cuda":
            return max(1, CPU_BYTES // size)
        return max(1, len(self._buffers) + int(GPU_SHARE * cuda.free_bytes(device) // size))

    def _buffer(self, index: int) -> torch.Tensor:
        while index >= len(self._buffers):
            self._buffers.append(torch.empty_like(self._pretrained))
        return self._buffers[index]

    def _count(self, task: TaskData, split: str, sets: Sequence[torch.Tensor], report: _Report) -> list[Score]:
        right = torch.zeros(len(sets), dtype=torch.int64, device=self.model.device)
        before = self.model.use(sets[0])
        count = getattr(self.model, "count_right_of", self._one_by_one)
        fewer = "lower `evaluation: batch_size` in params.yaml, or set jobs_per_gpu: 1"
        with torch.inference_mode(), cuda.reporting_out_of_memory(f"a pass of {self.batch_size} {self._unit}", fewer):
            for batch in prefetched(self.model.batches(task.splits[split], self.batch_size), self.model.device):
                right = right + count(batch, sets)  # not +=, because fractional scores turn it into a float tensor
                report.advance(len(sets) * len(batch))
        self.model.use(before)
        return right.tolist()

    def _one_by_one(self, batch: Batch, sets: Sequence[torch.Tensor]) -> torch.Tensor:
        counts = []
        for weights in sets:
            self.model.use(weights)
            counts.append(self.model.count_right(batch))
        return torch.stack(counts)


def unpack_mask(packed: NDArray[np.uint8], size: int, device: torch.device) -> NDArray[np.bool_] | torch.Tensor:
    """A packed mask, uint8 [ceil(P' / 8)], lowest bit first, as bool [P']: a NumPy array for a CPU, else a tensor."""
    if device.type == "cpu":
        return np.unpackbits(packed, count=size, bitorder="little").view(np.bool_)
    return unpacked(torch.from_dlpack(packed).to(device))[:size]


class _Report:
    def __init__(self, progress: Progress, what: str, unit: str, count: int) -> None:
        self._progress, self._what, self._unit, self._count = progress, what, unit, count
        self._done = 0
        self._start = self._last = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._last < REPORT_EVERY and self._done < self._count:
            return
        self._last = now
        rate = self._done / max(now - self._start, 1e-9)
        left = (self._count - self._done) / rate
        speed = f"{rate:.0f} {self._unit}/s, {left:.0f} s left"
        self._progress(f"{self._what}: {self._done} of {self._count} {self._unit}, {speed}")
