"""Stochastic rounding: no bias, bounded errors, and the same numbers everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.codec import coded_bytes
from tallmasks.vectors.multiples import PIECE

Array = NDArray[np.float32]
METHOD = methods.get("stochastic_rounding")
SHAPES = [(), (7,), (1, 30, 1), (9, 1), (3, 5), (4, 16, 3, 3), (3, 5, 7), (1, 40, 50), (PIECE // 500 + 1, 501)]


def steps(tau: Array, theta: Array, step: float) -> Array:
    """The step of each value of one tensor, by the plain statement."""
    out, flat, base = np.empty(tau.size), tau.reshape(-1).astype(float), theta.reshape(-1).astype(float)
    long = [length for length in tau.shape if length > 1]
    for start in range(0, tau.size, PIECE):
        here = np.arange(start, min(start + PIECE, tau.size))
        own = math.sqrt(np.mean(flat[here] ** 2))
        rows = here // math.prod(long[1:])
        for row in np.unique(rows):
            of_row = here[rows == row]
            out[of_row] = max(step * math.sqrt(np.mean(base[of_row] ** 2)), own) if len(long) > 1 else own / 10
    return out.reshape(tau.shape)


def first_long_axis(shape: tuple[int, ...]) -> int:
    return next((axis for axis, length in enumerate(shape) if length > 1), 0)


def drawn(shape: tuple[int, ...], size: float, seed: int = 0) -> tuple[Array, Array]:
    """A task vector whose weights are ``size`` as large as those of theta_0, whose rows differ."""
    draw, axis = np.random.default_rng(seed), first_long_axis(shape)
    of_rows = draw.uniform(0.1, 3, size=(*shape[: axis + 1], *[1] * len(shape[axis + 1 :])))
    theta = draw.normal(size=shape) * of_rows
    return (size * draw.standard_t(4, shape)).astype(np.float32), theta.reshape(shape).astype(np.float32)


def rounded(tau: Array, theta: Array, name: str = "w", step: float = 0.1) -> Array:
    method, layout = methods.get(f"stochastic_rounding:step={step}"), Layout((name,), (tau.shape,))
    update = method(task_vector=tau.reshape(-1), pretrained=theta.reshape(-1), layout=layout)
    assert update.dtype == np.float32
    return update.reshape(tau.shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.003, 2.0])
def test_every_weight_is_at_a_multiple_beside_it(shape: tuple[int, ...], size: float) -> None:
    """A weight would be off by more than a step, or a row have the step of another one."""
    tau, theta = drawn(shape, size)
    if tau.size > 8:
        theta.swapaxes(0, first_long_axis(shape))[0] = 0  # such as the row of a padding token
        tau.swapaxes(0, first_long_axis(shape))[-1] = 0
    found, step = rounded(tau, theta), steps(tau, theta, 0.1)
    is_vector = sum(length > 1 for length in shape) < 2
    assert (abs(found - tau) <= step * (0.5 if is_vector else 1) * (1 + 1e-5)).all()
    multiples = found / np.where(step, step, 1)
    np.testing.assert_allclose(multiples, np.rint(multiples), rtol=1e-5, atol=1e-5)
    assert not found[tau == 0].any()


@pytest.mark.parametrize(("size", "step"), [(0.003, 0.1), (0.003, 0.8), (0.3, 0.05), (0.3, 0.4)])
def test_the_error_has_the_mean_0_and_the_variance_of_the_equation(size: float, step: float) -> None:
    """The sum of a layer's many small errors would move its output."""
    tau, theta = drawn((600, 700), size)
    unit = steps(tau, theta, step)
    fraction = abs(tau) / unit % 1
    error, variance = rounded(tau, theta, step=step) - tau, unit**2 * fraction * (1 - fraction)
    assert error.var() == pytest.approx(variance.mean(), rel=0.05)
    for axes in (None, 0, 1):
        scores = error.sum(axis=axes) / np.sqrt(variance.sum(axis=axes))
        assert abs(scores).max() < 5
    for other in (tau, theta, np.sign(tau), abs(tau), np.arange(tau.size).reshape(tau.shape) % 2 - 0.5):
        assert abs((error * other).sum()) < 5 * np.sqrt((variance * other**2).sum())


def test_noise_is_not_shared() -> None:
    """In a merge of two restored models, or in tensors of equal values, all errors would have the same sign."""
    tau, theta = drawn((300, 300), 0.01)
    other = tau.copy()
    other[0, 0] *= 1.001
    errors = [rounded(*given) - given[0] for given in ((tau, theta), (other, theta), (tau, theta, "v"))]
    for one in errors[1:]:
        assert abs(np.corrcoef(errors[0].ravel(), one.ravel())[0, 1]) < 5 / 300


def test_the_same_numbers_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table, the bundle and a bundle on another machine would be three models."""
    layout = Layout(("a", "b", "c"), ((700, 800), (33,), (40, 50)))
    tau, theta = np.float32([[0.01], [1]]) * np.random.default_rng(0).normal(size=(2, layout.size)).astype(np.float32)
    given = {"task_vector": tau, "pretrained": theta, "layout": layout}
    found, nbytes = [], set()
    for threads in (1, 4):
        monkeypatch.setattr("tallmasks.parallel.cores", lambda count=threads: count)
        found.append(METHOD(**given))
        assert METHOD.codec
        nbytes.add(coded_bytes(METHOD.codec, tau, theta, layout, step=0.1))
    np.testing.assert_array_equal(*found)
    parts = [layout.split(vector) for vector in (found[0], tau, theta)]
    for name in layout.names:
        np.testing.assert_array_equal(parts[0][name], rounded(parts[1][name], parts[2][name], name))
    assert len(nbytes) == 1 and 0 < nbytes.pop() < layout.size / 8


@pytest.mark.parametrize("shape", [(50,), (50, 40)])
def test_extreme_values(shape: tuple[int, ...]) -> None:
    """One huge weight, denormals or a tensor of zeros would give NaN, or a model that is far off."""
    tau, theta = drawn(shape, 0.01)
    for of_base, of_task in ((1e8, 0.5), (1.0, 1e6), (1e30, 1e-40), (1e-40, 1.0), (3e38, 1e30)):
        base, change = theta.copy(), tau.copy()
        base.reshape(-1)[5], change.reshape(-1)[7] = of_base, of_task
        found = rounded(change, base)
        assert np.isfinite(found).all() and (abs(found - change) <= steps(change, base, 0.1) * (1 + 1e-5)).all()
