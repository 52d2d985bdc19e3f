"""The choice of coefficients and lambdas from counts, confidence intervals, and figure 5's task orders."""

import pytest
from scipy.stats import binomtest

from reproduction.evaluation.choice import accuracies, choose_coefficient, choose_per_task, normalized, wilson_interval
from reproduction.evaluation.records import SPLITS, Evaluation
from reproduction.evaluation.subsets import ORDERS, orders
from tallmasks.errors import TallmasksError


def test_ties_go_to_the_smallest_value() -> None:
    """Two machines could choose different coefficients from the same counts."""
    assert choose_coefficient([[1, 3, 3, 2]], [3], [1.0], ["one"]) == 1
    one, other = [1, 3, 3], [3, 3, 1]  # 1/3 + 1 + 1 and 1 + 1 + 1/3: the same mean, but not the same float
    means = [float(accuracies(counts, [3, 3, 3]).mean()) for counts in (one, other)]
    assert means[0] < means[1]
    for columns in ((one, other), (other, one)):
        assert choose_coefficient(list(zip(*columns, strict=True)), [3, 3, 3], [1.0] * 3, list("abc")) == 0
    assert choose_per_task([[5, 5, 4], [1, 2, 2]]) == [0, 1]


def test_the_coefficient_is_chosen_on_normalised_accuracy() -> None:
    """A hard task would count less than in the paper. Here the plain mean prefers index 0, the normalised one 1."""
    correct, total, finetuned = [[90, 80], [10, 16]], [100, 100], [0.9, 0.2]
    assert accuracies(correct, total).mean(axis=0).argmax() == 0
    assert choose_coefficient(correct, total, finetuned, ["easy", "hard"]) == 1


def test_a_useless_fine_tuned_model_is_named() -> None:
    """The table would contain infinities."""
    with pytest.raises(TallmasksError, match="svhn"):
        normalized([0.5, 0.5], [0.5, 0.0], ["mnist", "svhn"])


@pytest.mark.parametrize(("correct", "total"), [(0, 10), (10, 10), (45, 100), (1, 32768)])
def test_the_interval_is_wilsons(correct: int, total: int) -> None:
    """The interval next to an accuracy would be too narrow or too wide."""
    low, high = wilson_interval([correct], [total])
    expected = binomtest(correct, total).proportion_ci(0.95, method="wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert low[0] <= correct / total <= high[0]


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
