"""The inputs that a method's function can request by parameter name.

A file in ``rows`` can declare more inputs. ``of`` lists the inputs that an input is computed from:

    @method_input("norm", "the Euclidean norm of tau_t, float", per="task", of=("task_vector",))
    def norm(source: MethodInputs, task: int, lambda_index: int) -> float:
        return float(np.linalg.norm(source.task_vector(task).flat))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import Layout
from tallmasks.methods.method_usages import Fixed, Masked, Scaled, Usage
from tallmasks.methods.options import Value, options_for
from tallmasks.vectors.task_vectors import TaskVector

Per = Literal["benchmark", "task", "mask_lambda"]


class MethodInputs(Protocol):
    """The values of `INPUTS` for one method and ``count`` tasks, from artifacts or from memory."""

    @property
    def count(self) -> int: ...
    @property
    def pretrained(self) -> Any: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def multi_task_vector(self) -> NDArray[np.float32]: ...
    @property
    def agreement(self) -> NDArray[np.uint8]: ...
    def task_vector(self, task: int) -> TaskVector: ...
    def threshold(self, task: int) -> np.float32: ...

    def merged(self, merge: str) -> NDArray[np.float32]:
        """tau_MTL of another merge, computed from the task vectors, float32 [P']."""

    def packed_mask(self, task: int, lambda_index: int) -> NDArray[np.uint8]:
        """m_t at an index of the lambda grid, packed bits, uint8 [ceil(P' / 8)], lowest bit first."""

    def files(self, needed: Input) -> Sequence[Path]:
        """The files that contain an input: one, or one per task."""


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes:
        name: the parameter's name.
        meaning: description with shape and dtype.
        per: what it varies with: "benchmark" (same for all tasks), "task", or "mask_lambda" (task and lambda).
        find: ``(source, task, lambda_index, **options) -> value``. Its keyword-only parameters are options of every
            method that requests the input.
        merged: it follows from the method's merge.
        packed: the value is packed bits; the method gets them as bool [P'].
        of: the inputs that ``find`` uses.
    """

    name: str
    meaning: str
    per: Per
    find: Callable[..., Any]
    merged: bool = False
    packed: bool = False
    of: tuple[str, ...] = ()

    def value(self, source: MethodInputs, task: int, lambda_index: int, chosen: Mapping[str, Value]) -> Any:
        return self.find(source, task, lambda_index, **options_for(self.find, chosen))


INPUTS: dict[str, Input] = {}
Find = Callable[..., Any]
"""``(source, task, lambda_index, *, option=...) -> value``."""


def method_input(name: str, meaning: str, *, per: Per, **fields: Any) -> Callable[[Find], Input]:
    """Decorator: turns the function that computes its value into an input."""

    def register(find: Find) -> Input:
        if name in INPUTS:
            raise ValueError(f"input {name} is declared twice")
        INPUTS[name] = Input(name, meaning, per, find, **fields)
        return INPUTS[name]

    return register


def usage_problem(usage: Usage, needs: Collection[str], every: Collection[str]) -> str | None:
    """Why a method's inputs do not fit its usage, if an input varies by task or lambda but the usage does not.
    ``every``: the inputs in ``needs`` and those they are computed from."""
    of_one = [name for name in sorted(needs) if INPUTS[name].per != "benchmark"]
    if isinstance(usage, Fixed | Scaled) and of_one:
        return (
            f"{', '.join(of_one)} differs by task, but the usage {type(usage).__name__} builds one model for all "
            'tasks; expected inputs with per="benchmark"'
        )
    of_lambda = [name for name in sorted(every) if INPUTS[name].per == "mask_lambda"]
    if not isinstance(usage, Masked) and of_lambda:
        return f"{', '.join(of_lambda)} differs by mask_lambda; expected Masked, found {type(usage).__name__}"
    return None


method_input("tasks", "T, how many tasks there are, int", per="benchmark")(
    lambda source, task, lambda_index: source.count
)
method_input("pretrained", "theta_0 over the trainable tensors, float32 [P']", per="benchmark")(
    lambda source, task, lambda_index: source.pretrained
)
method_input("layout", "names and shapes of the trainable tensors; for methods over the whole model", per="benchmark")(
    lambda source, task, lambda_index: source.layout
)
TASK_VECTOR = method_input("task_vector", "tau_t, float32 [P']", per="task")(
    lambda source, task, lambda_index: source.task_vector(task).flat
)
_THRESHOLD = "the magnitude from which on tau_t is in its top keep(T), float32 scalar"
method_input("threshold", _THRESHOLD, per="task", of=("task_vector",))(
    lambda source, task, lambda_index: source.threshold(task)
)
_MERGED = "tau_MTL of the method's merge, float32 [P']"
MULTI_TASK_VECTOR = method_input("multi_task_vector", _MERGED, per="benchmark", merged=True)(
    lambda source, task, lambda_index: source.multi_task_vector
)
_COUNT = "n(p), how many tasks' selected masks hold each weight, uint8 [P']"
AGREEMENT = method_input("agreement", _COUNT, per="benchmark", merged=True)(
    lambda source, task, lambda_index: source.agreement
)
MASK = method_input("mask", "m_t for the mask_lambda at hand, bool [P']", per="mask_lambda", merged=True, packed=True)(
    lambda source, task, lambda_index: source.packed_mask(task, lambda_index)
)
