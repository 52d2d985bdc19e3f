"""The choice of coefficients and lambdas from counts, and confidence intervals."""

import pytest
from scipy.stats import binomtest

from reproduction.evaluation.choice import accuracies, choose_coefficient, choose_per_task, normalized, wilson_interval
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
