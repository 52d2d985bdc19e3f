"""Figure 5's task orders: the paper's protocol."""

import pytest

from reproduction.evaluation.records import SPLITS, Evaluation
from reproduction.evaluation.subsets import ORDERS, orders

PAPER = {
    "zeroshot_ascending": """KMNIST, EMNIST, SVHN, GTSRB, FER2013, DTD, EuroSAT, MNIST, RenderedSST2, Cars, PCAM,
        RESISC45, FashionMNIST, SUN397, CIFAR100, Flowers102, Food101, OxfordIIITPet, CIFAR10, STL10""",
    "zeroshot_wave": """Cars, PCAM, RenderedSST2, RESISC45, MNIST, FashionMNIST, EuroSAT, SUN397, DTD, CIFAR100,
        FER2013, Flowers102, GTSRB, Food101, SVHN, OxfordIIITPet, EMNIST, CIFAR10, KMNIST, STL10""",
    "name_ascending": """CIFAR10, CIFAR100, Cars, DTD, EMNIST, EuroSAT, FER2013, FashionMNIST, Flowers102, Food101,
        GTSRB, KMNIST, MNIST, OxfordIIITPet, PCAM, RESISC45, RenderedSST2, STL10, SUN397, SVHN""",
    "name_wave": """CIFAR10, SVHN, CIFAR100, SUN397, Cars, STL10, DTD, RenderedSST2, EMNIST, RESISC45, EuroSAT, PCAM,
        FER2013, OxfordIIITPet, FashionMNIST, MNIST, Flowers102, KMNIST, Food101, GTSRB""",
}
"""Lists of appendix "Sample subset selection protocol"; the other four are these reversed."""

LISTS = {order: tuple(name.strip().lower() for name in text.split(",")) for order, text in PAPER.items()}
for one, other in (("ascending", "descending"), ("wave", "zigzag")):
    LISTS |= {f"{sort}_{other}": LISTS[f"{sort}_{one}"][::-1] for sort in ("zeroshot", "name")}


def zeroshot(count: int = 20) -> Evaluation:
    """The pretrained model's evaluation on the first tasks in ascending order, listed by name."""
    correct = {task: place for place, task in enumerate(LISTS["zeroshot_ascending"][:count])}
    tasks = tuple(sorted(correct))
    scores = {split: [correct[task] for task in tasks] for split in SPLITS}
    return Evaluation("zeroshot", tasks, {split: [20] * count for split in SPLITS}, scores)


@pytest.mark.parametrize("order", ORDERS)
def test_the_orders_are_the_papers(order: str) -> None:
    """Figure 5 would average over other subsets than the paper's."""
    assert orders(zeroshot())[order] == LISTS[order]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_tasks(count: int) -> None:
    """A benchmark with one task, or an odd number of tasks, would lose the one in the middle."""
    some = zeroshot(count)
    for tasks in orders(some).values():
        assert tuple(sorted(tasks)) == some.tasks
