"""RegMean, Fisher merging and ESM: compared with plain statements, also for data that leaves weights open."""

from __future__ import annotations

import numpy as np
import torch

import later_reference
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector
from task_statistics import for_merge, inputs

LAYOUT = Layout(("a.bias", "a.weight", "conv.weight", "deep.weight"), ((5,), (5, 7), (3, 2, 2), (4, 60)))
TASKS = 3


def models(seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """theta_0 and all theta_t, float32 [P']."""
    draw = np.random.default_rng(seed)
    base = draw.normal(size=LAYOUT.size).astype(np.float32)
    return base, [base + 0.1 * draw.normal(size=LAYOUT.size).astype(np.float32) for _ in range(TASKS)]


def merged(name: str, known: list[dict[str, np.ndarray]]) -> tuple[dict[str, torch.Tensor], list[dict]]:
    """The merged model and the models of the tasks, float64 by tensor."""
    base, tuned = models()
    out = np.empty_like(base)
    methods.get_merge(name)([TaskVector(one - base, LAYOUT, {}) for one in tuned], out, known)
    found = [
        {key: torch.from_numpy(part.astype(np.float64)) for key, part in LAYOUT.split(flat).items()}
        for flat in (base + out, *tuned)
    ]
    return found[0], found[1:]


def test_regmean_is_the_least_squares_solution() -> None:
    """The row would be another method: it is least squares for linear layers, the mean for other tensors."""
    new, tuned = merged("regmean", for_merge("regmean", LAYOUT, range(TASKS)))
    rows = [{name: torch.from_numpy(x / len(x) ** 0.5) for name, x in inputs(LAYOUT, t).items()} for t in range(TASKS)]
    for name in ("a.weight", "deep.weight"):
        wanted = torch.cat([x[name] @ own[name].T for x, own in zip(rows, tuned, strict=True)])
        solution = torch.linalg.lstsq(torch.cat([x[name] for x in rows]), wanted).solution.T
        torch.testing.assert_close(new[name], solution, rtol=0, atol=2e-5)
        assert (new[name] - sum(own[name] for own in tuned) / TASKS).abs().max() > 1e-2, "it is not the mean"
    for name in ("a.bias", "conv.weight"):
        torch.testing.assert_close(new[name], sum(own[name] for own in tuned) / TASKS, rtol=0, atol=1e-6)


def test_regmean_scales_off_diagonals() -> None:
    """The option would have no effect, or scale the diagonal too."""
    known = for_merge("regmean", LAYOUT, range(TASKS))
    for share in (0.95, 0.0):
        new, tuned = merged(f"regmean:off_diagonal={share}", known)
        grams = [torch.from_numpy(one["a.weight"].astype(np.float64)) for one in known]
        grams = [share * gram + (1 - share) * torch.diag(gram.diagonal()) for gram in grams]
        both = sum(gram @ own["a.weight"].T for gram, own in zip(grams, tuned, strict=True))
        torch.testing.assert_close(new["a.weight"], (torch.inverse(sum(grams)) @ both).T, rtol=0, atol=2e-5)


def test_regmean_keeps_the_mean_in_directions_without_data() -> None:
    """With few examples or dead units, a singular matrix would end the merge or fill the model with noise."""
    known = for_merge("regmean", LAYOUT, range(TASKS))
    few = {t: inputs(LAYOUT, t, rows=9)["deep.weight"] for t in range(TASKS)}
    for task, x in few.items():
        x[:, 50:] = 0
        known[task]["deep.weight"] = (x.T @ x / len(x)).astype(np.float32)
        known[task]["a.weight"][:] = 0
    new, tuned = merged("regmean", known)
    means = {name: sum(own[name] for own in tuned) / TASKS for name in new}
    torch.testing.assert_close(new["deep.weight"][:, 50:], means["deep.weight"][:, 50:], rtol=0, atol=1e-6)
    torch.testing.assert_close(new["a.weight"], means["a.weight"], rtol=0, atol=1e-6)
    for task, x in few.items():  # 27 rows in 50 dimensions: the outputs of all models can be reproduced
        rows = torch.from_numpy(x)
        torch.testing.assert_close(rows @ new["deep.weight"].T, rows @ tuned[task]["deep.weight"].T, rtol=0, atol=2e-3)
    assert (new["deep.weight"] - means["deep.weight"]).abs().max() < 1


def test_fisher_is_the_weighted_mean_of_the_models() -> None:
    """The row would be another method: here each weight counts by its squared gradient."""
    known = for_merge("fisher", LAYOUT, range(TASKS))
    new, tuned = merged("fisher", known)
    lengths = [torch.cat([torch.from_numpy(f.ravel()).double() for f in one.values()]).norm() for one in known]
    assert max(lengths) > 20 * min(lengths), "otherwise the lengths are not tested"
    for name in LAYOUT.names:
        fishers = [torch.from_numpy(one[name]).double() + 1e-6 for one in known]
        weights = [fisher / (length + 1e-6) for fisher, length in zip(fishers, lengths, strict=True)]
        both = sum(weight * own[name] for weight, own in zip(weights, tuned, strict=True))
        torch.testing.assert_close(new[name], both / sum(weights), rtol=0, atol=1e-5)


FCS, OUTS = (tuple(f"h.{block}.{name}.weight" for block in range(2)) for name in ("fc", "out"))
BLOCKS = Layout((*FCS, *OUTS, "table", "z.bias"), (*[(9, 14)] * 2, *[(11, 12)] * 2, (8, 6), (5,)))


def updates() -> list[TaskVector]:
    """Task vectors of two blocks; those of a block and of a task are larger than the others."""
    flats = np.random.default_rng(0).normal(size=(TASKS, BLOCKS.size)).astype(np.float32)
    flats *= np.float32([[1], [1.5], [2]])
    for flat in flats:
        BLOCKS.split(flat)["h.1.fc.weight"][...] *= 2
    return [TaskVector(flat, BLOCKS, {}) for flat in flats]


def by_esm(given: list[TaskVector], known: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    out = np.full(BLOCKS.size, np.nan, np.float32)
    methods.get_merge("esm")(given, out, [{name: one[name] for name in (*FCS, *OUTS)} for one in known])
    return BLOCKS.split(out)


def test_esm_is_the_plain_statement() -> None:
    """The row would be another method: it follows the outputs of layers, and scales tasks, columns and layers."""
    given = updates()
    found = by_esm(given, for_merge("esm", BLOCKS, range(TASKS)))
    of_tasks, plain = [BLOCKS.split(vector.flat) for vector in given], np.empty(BLOCKS.size, np.float32)
    for names in (FCS, OUTS):
        tensors = [np.stack([one[name] for one in of_tasks]) for name in names]
        data = [[inputs(BLOCKS, task)[name] for task in range(TASKS)] for name in names]
        for name, expected in zip(names, later_reference.esm(tensors, data), strict=True):
            np.testing.assert_allclose(found[name], expected, rtol=1e-3, atol=1e-5)
    methods.get_merge("tsv_m")(given, plain)
    for name in ("table", "z.bias"):
        np.testing.assert_array_equal(found[name], BLOCKS.split(plain)[name])


def test_esm_ignores_noise() -> None:
    """LoRAs, or layers with hardly any data, would be merged along directions that are only rounding errors."""
    given, known = updates(), for_merge("esm", BLOCKS, range(TASKS))
    draw = np.random.default_rng(1)
    for task, vector in enumerate(given):
        tensors = BLOCKS.split(vector.flat)
        own = np.random.default_rng(task // 2)  # two tasks have the same update
        tensors[OUTS[0]][...] = np.outer(own.normal(size=11), own.normal(size=12))
        tensors[OUTS[1]][...] = 0
        x = inputs(BLOCKS, task, rows=2)[FCS[0]]
        known[task][FCS[0]] = (x.T @ x / len(x)).astype(np.float32)
        known[task][FCS[1]][...] = 0
    moved = [
        TaskVector(vector.flat * (1 + 1e-6 * draw.normal(size=BLOCKS.size)).astype(np.float32), BLOCKS, {})
        for vector in given
    ]
    found, again = by_esm(given, known), by_esm(moved, known)
    for name, values in found.items():
        assert np.linalg.norm(values - again[name]) <= 1e-4 * np.linalg.norm(values), name
    assert [np.linalg.matrix_rank(found[name], tol=1e-4) for name in (FCS[0], OUTS[0])] == [6, 2]
    mean = np.mean([BLOCKS.split(vector.flat)[FCS[1]] for vector in given], axis=0)
    np.testing.assert_allclose(found[FCS[1]] / np.linalg.norm(found[FCS[1]]), mean / np.linalg.norm(mean), atol=1e-5)
    assert not found[OUTS[1]].any()
