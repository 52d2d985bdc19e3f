"""Which subsets of a benchmark stand for "n tasks": appendix "Sample subset selection protocol" of Wang et al. 2024.

There are eight orders of all tasks, four by zero-shot accuracy and four by name.  The first n tasks of an order are
its subset of size n.  A *zigzag* or *wave* order takes the two ends of a sorted list in turn; the other one of the two
is the same list backwards.  Which is which follows the paper's lists, not the words: by accuracy the zigzag begins at
the ends (STL10, KMNIST, CIFAR10, ...), by name the wave does (CIFAR10, SVHN, CIFAR100, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallmasks.tasks.titles import title

SHAPES = ("ascending", "descending", "wave", "zigzag")
ORDERS = tuple(f"{sort}_{shape}" for sort in ("zeroshot", "name") for shape in SHAPES)


@dataclass(frozen=True)
class Subset:
    """A set of tasks, and every (order, n) whose first n tasks it holds."""

    tasks: tuple[str, ...]
    """Sorted by name."""
    places: tuple[tuple[str, int], ...]


def orders(zeroshot: Mapping[str, float]) -> dict[str, tuple[str, ...]]:
    """The eight orders of the tasks by name (see ``ORDERS``), from the zero-shot accuracy by task.

    Names are compared in the paper's spelling, capitals before small letters, also of tasks of equal accuracy.
    """
    by_name = tuple(sorted(zeroshot, key=title))
    by_accuracy = tuple(sorted(by_name, key=lambda task: zeroshot[task]))
    accuracy_ends, name_ends = _from_ends(by_accuracy[::-1]), _from_ends(by_name)
    return {
        "zeroshot_ascending": by_accuracy,
        "zeroshot_descending": by_accuracy[::-1],
        "zeroshot_wave": accuracy_ends[::-1],
        "zeroshot_zigzag": accuracy_ends,
        "name_ascending": by_name,
        "name_descending": by_name[::-1],
        "name_wave": name_ends,
        "name_zigzag": name_ends[::-1],
    }


def _from_ends(tasks: Sequence[str]) -> tuple[str, ...]:
    """First, last, second, last but one, ..."""
    half = (len(tasks) + 1) // 2
    pairs = zip(tasks[:half], tasks[::-1], strict=False)
    return tuple(task for pair in pairs for task in pair)[: len(tasks)]


def distinct_subsets(ordered: Mapping[str, Sequence[str]]) -> list[Subset]:
    """The first n tasks of every order, for every n; equal sets appear once, small ones first."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for n in range(1, len(next(iter(ordered.values()))) + 1):
        for order, tasks in ordered.items():
            places.setdefault(tuple(sorted(tasks[:n])), []).append((order, n))
    return [Subset(tasks, tuple(where)) for tasks, where in places.items()]
