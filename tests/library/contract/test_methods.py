"""Every registered method, held to the contract; the registry; and what recipes hold of a method's code."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import reference
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import registry
from tallmasks.methods.contract import MethodUpdates
from tallmasks.vectors.task_vectors import TaskVector

TAU = np.array([3, -2, 1, -0.5, 0, 4], np.float32)
MERGED = np.array([5, 1, -1, 2, 7, 0], np.float32)
INPUTS = {
    "pretrained": np.ones(6, np.float32),
    "task_vector": TAU,
    "multi_task_vector": MERGED,
    "stored_vector": MERGED,
    "agreement": np.array([0, 1, 2, 3, 1, 3], np.uint8),
    "mask": np.array([1, 0, 1, 1, 0, 1], bool),
    "threshold": np.float32(2),
    "tasks": 3,
    "layout": Layout(("0.a", "b"), ((2, 2), (2,))),
}


def is_single(value: object) -> bool:
    """True for values that are not arrays."""
    return not np.ndim(value) or isinstance(value, Layout)


UPDATES = {
    "zeroshot": [0, 0, 0, 0, 0, 0],
    "weight_averaging": MERGED,
    "task_arithmetic": MERGED,
    "ties": MERGED,
    "consensus_task_arithmetic": [0, 0, -1, 2, 0, 0],
    "consensus_task_arithmetic_k1": [0, 1, -1, 2, 7, 0],
    "consensus_ties": [0, 0, -1, 2, 0, 0],
    "consensus_ties_k1": [0, 1, -1, 2, 7, 0],
    "fine_tuned": TAU,
    "magnitude_pruning": [3, -2, 0, 0, 0, 4],
    "magnitude_masking": [5, 1, 0, 0, 0, 0],
    "tall_mask_task_arithmetic": [5, 0, -1, 2, 0, 0],
    "tall_mask_ties": [5, 0, -1, 2, 0, 0],
    "iso_c": MERGED,
    # agreeing signs at the first weight alone; tau's tensors have mean magnitudes 6.5 / 4 and 2, the kept one 5 / 4
    "emr": [2.9 * 5, 0, 0, 0, 0, 0],
    # the matrix has mean magnitude 6.5 / 4, and rank floor(2 / 3) = 0: it is whole; of two weights of a sign both stay
    "tsv_c": TAU,
    "bitdelta": [1.625, -1.625, 1.625, -1.625, 0, 4],
    "t_switch": [*(np.sqrt(14.25 / 4) * np.array([1, -1, 1, -1])), 0, 4],
    # steps as long as the matrix, whose weights become one of the two multiples beside them, and a tenth of the vector
    "stochastic_rounding": [*(np.sqrt(14.25 / 4) * np.array([1, -2, 1, 0])), 0, 14 / 10 * np.sqrt(8)],
    "lossless": TAU,
    # seven steps from -2 to 3, of which one is at 0; the vector is whole
    "tvq": [4 / 1.4, -3 / 1.4, 1 / 1.4, -1 / 1.4, 0, 4],
    # a third of the merged vector in steps of 2 / 7, and the rest in steps of 25 / 21
    "rtvq": [12 / 7 + 25 / 21, 2 / 7 - 50 / 21, -2 / 7 + 25 / 21, 4 / 7 - 25 / 21, 0, 4],
}
ELEMENTWISE = [name for name in methods.names() if not methods.get(name).whole_model]


def update(name, part=slice(None)):
    """A method's update from a slice of the inputs."""
    method = methods.get(name)
    given = {key: INPUTS[key] for key in method.needs}
    return method(**{key: value if is_single(value) else value[part] for key, value in given.items()})


def test_the_papers_rows_are_there_in_order():
    """A row of the paper's tables would be missing or out of place."""
    assert tuple(name for name in methods.names() if name in reference.PAPER_ROWS) == reference.PAPER_ROWS


@pytest.mark.parametrize("name", methods.names())
def test_updates_are_what_is_expected(name):
    """A row of the tables would be of another method, or a method would change its inputs."""
    kept = {key: np.copy(value) for key, value in INPUTS.items() if key != "layout"}
    whole = update(name)
    assert (whole.dtype, whole.shape) == (np.float32, TAU.shape)
    if name in UPDATES:
        np.testing.assert_allclose(whole, np.array(UPDATES[name], np.float32), rtol=1e-6)
    if name in ELEMENTWISE:
        np.testing.assert_array_equal(np.concatenate([update(name, slice(0, 2)), update(name, slice(2, 6))]), whole)
    assert all(np.array_equal(INPUTS[key], value) for key, value in kept.items())


@pytest.mark.parametrize("name", methods.names())
def test_a_gpus_tensors_give_what_arrays_give(name):
    """A table would depend on where it was computed: zeros, equal magnitudes, a threshold that is met."""
    draw = np.random.default_rng(0)
    grid = np.array([-2, -0.5, -0.0, 0, 0.25, 0.5, 2], np.float32)
    given = {
        **{key: draw.choice(grid, 5000) for key in ("pretrained", "task_vector", "multi_task_vector", "stored_vector")},
        "agreement": draw.integers(0, 9, 5000, np.uint8),
        "mask": draw.random(5000) < 0.4,
        "threshold": np.float32(0.5),
        "tasks": 3,
        "layout": Layout(("0.a", "b"), ((40, 100), (1000,))),
    }
    given["stored_vector"] = given["multi_task_vector"]
    method = methods.get(name)
    inputs = {key: given[key] for key in method.needs}
    tensors = {key: value if is_single(value) else torch.from_numpy(value) for key, value in inputs.items()}
    expected, found = method(**inputs), method(**tensors)
    assert isinstance(found, torch.Tensor) and found.numpy().dtype == expected.dtype == np.float32
    if name in ELEMENTWISE:
        np.testing.assert_array_equal(found.numpy(), expected)
    else:  # a mean over a tensor is added up in another order
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


class Given:
    """The inputs of two tasks, with different masks for two lambdas."""

    count, layout, multi_task_vector, pretrained = 2, INPUTS["layout"], MERGED, INPUTS["pretrained"]

    def task_vector(self, task):
        return TaskVector((TAU, np.float32([0, 0, 0, 2, 5, 0]))[task], self.layout, {})

    def threshold(self, task):
        return np.float32(1 + task)

    def packed_mask(self, task, lambda_index):
        return np.uint8([1 + 2 * task + 4 * lambda_index])


@pytest.mark.parametrize("name", [name for name in methods.names() if methods.get(name).section == "compression"])
def test_each_task_has_its_own_inputs(name):
    """Of two tasks with the same lambda, the second would be evaluated with the mask of the first."""

    def as_given(declared, value):
        return np.unpackbits(value, count=TAU.size, bitorder="little").astype(bool) if declared.packed else value

    method, found = methods.get(name), []
    every = MethodUpdates(method, Given(), as_given)
    for task, lambda_index in ((0, 0), (1, 0), (1, 1), (0, 1)):
        found.append(every(task, lambda_index))
        np.testing.assert_array_equal(found[-1], MethodUpdates(method, Given(), as_given)(task, lambda_index))
    assert not np.array_equal(found[0], found[1])


def test_coefficients_and_fractions_are_the_methods():
    """Weight averaging would not average; magnitude pruning would cost more or less than TALL-masks."""
    assert methods.get("weight_averaging").usage.coefficient_for(8) == 1 / 8
    assert methods.get("magnitude_masking").kept.share(8) == 0.1
    assert methods.get("magnitude_pruning").kept.share(8) == 40 / 256
    merges = {name: methods.get(name).merge for name in reference.PAPER_ROWS}
    assert merges["ties"] == "ties_mean"
    assert {merges[name] for name in reference.PAPER_ROWS if name.endswith("ties") and name != "ties"} == {"ties_sum"}


def test_k_is_an_option_with_the_rows_own_default():
    """A row with another k would fall back to 2 as soon as any option is set, and keep its title."""
    rows = ("consensus_ties_k1:keep=0.1", "consensus_ties_k1:k=2", "consensus_ties:k=1", "consensus_ties:k=2")
    assert [methods.get(row).chosen["k"] for row in rows] == [1, 2, 1, 2]
    assert methods.spec_of({"consensus_ties_k1": {"k": 1}}) == "consensus_ties_k1"
    with pytest.raises(TallmasksError, match=r"'ties_men' .did you mean 'ties_mean'"):
        methods.get_merge("ties_men")


def test_an_option_has_one_default(monkeypatch):
    """A merge would learn with one value and apply another; a table would show the size of another number of bits."""
    for name in ("_methods", "_merges"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    fields = {"order": 900, "title": "", "paper": "", "usage": methods.PerTask()}
    tvq, few = methods.storage_formulas.evenly_rounded, methods.KeptFraction(lambda tasks, *, keep=0.2: keep)
    wrong = [
        methods.merge("a", prepare=lambda vectors, *, keep=0.2: keep),
        methods.merge("b", learn=lambda network, *, keep=0.2: {}),
        methods.method(name="c", storage=methods.storage_formulas.few_values, **fields),
        methods.method(name="d", storage=tvq, kept=few, **fields),
    ]
    for register in wrong[:2]:
        with pytest.raises(
            ValueError, match=r"option keep of .*: found the defaults 0.1 and 0.2, expected one default"
        ):
            register(lambda vectors, piece, prepared, *, keep=0.1: vectors[0])
    for register in wrong[2:]:
        with pytest.raises(ValueError, match=r"option keep of .*: found the defaults 0.1 and 0.0?[23]"):
            register(lambda task_vector, threshold, *, keep=0.1: task_vector)


def test_a_recipe_follows_the_methods_file_and_what_is_chosen():
    """After an edit the table would keep what the old code made, and nothing would say so."""
    row = methods.get("consensus_dare")
    others = replace(row, chosen={"k": 3}), replace(row, usage=methods.Scaled((1.0,)))
    assert len({row.code, *(other.code for other in others)}) == 3
    assert methods.get_merge("lines").code != methods.get_merge("sum").code
