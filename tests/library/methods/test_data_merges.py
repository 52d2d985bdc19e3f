"""RegMean and Fisher merging: compared with plain statements in torch, also for data that leaves weights open."""

from __future__ import annotations

import numpy as np
import torch

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
