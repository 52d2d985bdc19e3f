"""TSV-C, BitDelta and T-Switch, compared with plain statements; DARE per task and UltraDelta."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tallmasks import methods
from tallmasks.io.tensor_files import Layout

LAYOUT = Layout(
    ("0.a.weight", "0.b.bias", "0.c.weight", "0.d.weight", "0.e.multiplier", "embed.weight"),
    ((12, 7), (9,), (5, 16), (3, 2, 4), (6, 1), (8, 3)),
)
Array = NDArray[np.float32]


def drawn(seed: int) -> Array:
    """A task vector with weights that did not move and, for seed 2, a tensor in which no weight moved."""
    draw = np.random.default_rng(seed)
    flat = draw.standard_t(3, LAYOUT.size).astype(np.float32)
    flat[draw.random(LAYOUT.size) < 0.1] = 0
    if seed == 2:
        LAYOUT.split(flat)["0.c.weight"][...] = 0
    return flat


def found(name: str, flat: Array, **more: object) -> dict[str, Array]:
    method = methods.get(name)
    given = {"task_vector": flat, "layout": LAYOUT, **more}
    return LAYOUT.split(method(**{key: given[key] for key in method.needs}))


@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_tsv_c_is_the_plain_statement(seed: int, tasks: int) -> None:
    """The row would be another method: it keeps the top floor(r / T) triplets of each matrix, other tensors whole."""
    flat = drawn(seed)
    for name, part in LAYOUT.split(flat).items():
        expected = part
        if part.ndim == 2 and min(part.shape) > 1 and min(part.shape) >= tasks:
            left, singular, right = np.linalg.svd(part.astype(np.float64), full_matrices=False)
            singular[len(singular) // tasks :] = 0
            expected = left @ np.diag(singular) @ right
        np.testing.assert_allclose(found("tsv_c", flat, tasks=tasks)[name], expected, rtol=1e-5, atol=1e-6)


def test_bitdelta_is_the_plain_statement() -> None:
    """The row would be another method: it keeps a sign per weight of a layer's matrix, times their mean magnitude."""
    flat = drawn(0)
    for name, part in LAYOUT.split(flat).items():
        expected = part
        if name in ("0.a.weight", "0.c.weight"):
            expected = np.where(part < 0, -1, 1) * abs(part).mean()
        np.testing.assert_allclose(found("bitdelta", flat)[name], expected, rtol=1e-6)


@pytest.mark.parametrize("drop", [0.0, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("seed", range(3))
def test_t_switch_is_the_plain_statement(seed: int, drop: float) -> None:
    """The row would be another method: it keeps, per tensor and sign, the largest weights at one magnitude."""
    flat = drawn(seed)
    for name, part in LAYOUT.split(flat).items():
        expected = np.zeros(part.size)
        for sign in (1, -1):
            places = [place for place, value in enumerate(part.flat) if value * sign > 0]
            places.sort(key=lambda place: -abs(part.flat[place]))
            for place in places[: int(len(places) * (1 - drop)) or len(places)]:
                expected[place] = sign
        if expected.any():
            squares = sum(float(part.flat[place]) ** 2 for place in expected.nonzero()[0])
            expected *= np.sqrt(squares / np.abs(expected).sum())
        name_of = f"t_switch:drop={drop}" if drop != 0.6 else "t_switch"
        np.testing.assert_allclose(found(name_of, flat)[name].reshape(-1), expected, rtol=1e-5)


def test_few_enlarged_weights_have_the_mean_of_all() -> None:
    """DARE and UltraDelta would shrink each task, or UltraDelta keep most of the matrices that moved least."""
    layout = Layout(("a", "b", "c"), ((300, 300),) * 3)
    draw = np.random.default_rng(0)
    flat = np.concatenate([size * draw.normal(size=90_000) for size in (1, 2, 3)]).astype(np.float32)
    for name, shares in (("dare_per_task", (0.03, 0.03, 0.03)), ("ultradelta", (0.02, 0.03, 0.04))):
        update = methods.get(name)(task_vector=flat, layout=layout)
        for tensor, whole, share in zip(
            layout.split(update).values(), layout.split(flat).values(), shares, strict=True
        ):
            assert np.mean(tensor != 0) == pytest.approx(share, abs=0.003)
            assert np.vdot(tensor, whole) / np.vdot(whole, whole) == pytest.approx(share / 0.03, abs=0.1)
