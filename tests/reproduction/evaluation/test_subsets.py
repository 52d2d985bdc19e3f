"""Figure 5's task subsets: the paper's protocol, without duplicates."""

import pytest

from reproduction.evaluation.subsets import ORDERS, distinct_subsets, orders

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
ZEROSHOT = {task: float(place) for place, task in enumerate(LISTS["zeroshot_ascending"])}


@pytest.mark.parametrize("order", ORDERS)
def test_the_orders_are_the_papers(order: str) -> None:
    """Figure 5 would average over other subsets than the paper's."""
    assert orders(ZEROSHOT)[order] == LISTS[order]


def test_equal_subsets_are_listed_once() -> None:
    """The sweep would evaluate a subset twice, or the mean would lose a subset's weight."""
    found = distinct_subsets(orders(ZEROSHOT))
    assert len({subset.tasks for subset in found}) == len(found) < 8 * 20
    assert sorted(place for subset in found for place in subset.places) == sorted(
        (order, n) for order in ORDERS for n in range(1, 21)
    )
    for subset in found:
        for order, n in subset.places:
            assert subset.tasks == tuple(sorted(LISTS[order][:n]))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_tasks(count: int) -> None:
    """A benchmark with one task, or an odd number of tasks, would lose the one in the middle."""
    some = dict(list(ZEROSHOT.items())[:count])
    for tasks in orders(some).values():
        assert sorted(tasks) == sorted(some)
