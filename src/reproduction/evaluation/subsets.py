"""Orders of the tasks of a benchmark: appendix "Sample subset selection protocol" of Wang et al. 2024.

A subset is the first n tasks of one of eight orders: four by zero-shot accuracy, four by name. *Zigzag* and *wave*
alternate between the two ends of a sorted list, and one is the reverse of the other. As in the paper's lists, the order
that starts at the ends is called zigzag by accuracy (STL10, KMNIST, CIFAR10, ...), but wave by name (CIFAR10, SVHN,
CIFAR100, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.evaluation.records import Evaluation
from reproduction.tasks.titles import title

SHAPES = ("ascending", "descending", "wave", "zigzag")
ORDERS = tuple(f"{sort}_{shape}" for sort in ("zeroshot", "name") for shape in SHAPES)


def orders(zeroshot: Evaluation) -> dict[str, tuple[str, ...]]:
    """The eight orders of ``ORDERS``, from the pretrained model's test accuracy on each task.

    Names are sorted in the paper's spelling, upper case before lower case. Tasks of equal accuracy are sorted by name.
    """
    accuracy = dict(zip(zeroshot.tasks, zeroshot.accuracy("test"), strict=True))
    by_name = tuple(sorted(accuracy, key=title))
    by_accuracy = tuple(sorted(by_name, key=lambda task: accuracy[task]))
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
