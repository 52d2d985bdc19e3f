"""Counting right answers of many weight sets on many tasks.

A weight set is theta_0 + coefficient * update.  It is built on the model's device in one operation and never written
to disk; the data of all tasks stay in memory, decoded and prepared once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.models import Model

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Examples:
    """One split of one task: images uint8 [N, H, W, 3] (or what the model's `prepare` takes), labels int64 [N]."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class TaskData:
    """A task as an evaluation sees it: its zero-shot head float32 [C, D] and its splits by name."""

    name: str
    head: NDArray[np.float32]
    splits: Mapping[str, Examples]


class Evaluator:
    """One model with the data of its tasks, ready to count right answers for any number of weight sets.

    Args:
        model: the pretrained model; its trainable tensors are overwritten again and again.
        tasks: the tasks, in the order of all the counts that come back.
        batch_size: images per forward pass.
        progress: called with a line for people every few seconds.
    """

    def __init__(
        self,
        model: Model,
        tasks: Sequence[TaskData],
        batch_size: int = 128,
        progress: Progress = lambda line: None,
    ) -> None:
        self.model = model
        self.tasks = tuple(tasks)
        self.batch_size = batch_size
        self._progress = progress
        self._pretrained = model.pretrained_flat()
        self._prepared: dict[tuple[str, str], list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def totals(self, split: str) -> list[int]:
        """Numbers of examples, [tasks]."""
        return [len(task.splits[split].labels) for task in self.tasks]

    def scaled(self, split: str, update: NDArray[np.float32], coefficients: Sequence[float]) -> list[list[int]]:
        """Right answers of theta_0 + coefficient * update for every task and coefficient, [tasks][coefficients].

        Args:
            split: "validation" or "test".
            update: float32 [P'], for example a multi-task vector.
            coefficients: scaling coefficients.
        """
        direction = torch.from_numpy(np.ascontiguousarray(update))
        counts: list[list[int]] = [[] for _ in self.tasks]
        report = _Report(self._progress, split, len(coefficients) * sum(self.totals(split)))
        with torch.inference_mode():
            for coefficient in coefficients:
                self.model.flat.copy_(torch.add(self._pretrained, direction, alpha=coefficient))
                for index, task in enumerate(self.tasks):
                    counts[index].append(self._count(task, split))
                    report.advance(len(task.splits[split].labels))
        return counts

    def as_is(self, split: str, weights: torch.Tensor) -> list[int]:
        """Right answers of one weight set float32 [P'], on every task, [tasks]."""
        with torch.inference_mode():
            self.model.flat.copy_(weights)
            return [self._count(task, split) for task in self.tasks]

    def own(
        self, split: str, updates: Callable[[int], Iterator[NDArray[np.float32]]], candidates: int
    ) -> list[list[int]]:
        """Right answers of each task's own weight sets on that task, [tasks][candidates].

        Args:
            split: "validation" or "test".
            updates: for a task's index, its float32 [P'] updates one after the other.
            candidates: how many they are, for the progress report.
        """
        report = _Report(self._progress, split, candidates * sum(self.totals(split)))
        counts: list[list[int]] = []
        with torch.inference_mode():
            for index, task in enumerate(self.tasks):
                counts.append([])
                for update in updates(index):
                    torch.add(self._pretrained, torch.from_numpy(update), out=self.model.flat)
                    counts[index].append(self._count(task, split))
                    report.advance(len(task.splits[split].labels))
        return counts

    def _count(self, task: TaskData, split: str) -> int:
        head = torch.from_numpy(task.head)
        return sum(
            int((self.model.logits(images, head).argmax(dim=1) == labels).sum())
            for images, labels in self._batches(task, split)
        )

    def _batches(self, task: TaskData, split: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        key = (task.name, split)
        if key not in self._prepared:
            images = self.model.prepare(task.splits[split].images)
            labels = torch.from_numpy(task.splits[split].labels)
            self._prepared[key] = list(zip(images.split(self.batch_size), labels.split(self.batch_size), strict=True))
        return self._prepared[key]


class _Report:
    """Lines with the share done, images/s and the time left, every few seconds and at the end."""

    def __init__(self, progress: Progress, what: str, images: int, every: float = 5.0) -> None:
        self._progress, self._what, self._images, self._every = progress, what, images, every
        self._done = 0
        self._start = self._last = time.monotonic()

    def advance(self, images: int) -> None:
        self._done += images
        now = time.monotonic()
        if now - self._last < self._every and self._done < self._images:
            return
        self._last = now
        rate = self._done / max(now - self._start, 1e-9)
        left = (self._images - self._done) / rate
        self._progress(f"{self._what}: {self._done} of {self._images} images, {rate:.0f} images/s, {left:.0f} s left")
