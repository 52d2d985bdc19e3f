"""Computes the updates of a method from its inputs, for whole models or for one piece of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallmasks.methods.contract import Method
from tallmasks.methods.inputs import INPUTS, Input


class Updates:
    """The updates of one method.

    Args:
        source: a `tallmasks.methods.Source`, or an object with the attributes of it that the method's inputs use.
        convert: converts an input's value before the method gets it, for example to a GPU tensor.
    """

    def __init__(
        self, method: Method, source: Any, convert: Callable[[Input, Any], Any] = lambda declared, value: value
    ) -> None:
        self._method, self._source, self._convert = method, source, convert
        self._inputs: dict[str, tuple[object, Any]] = {}

    def __call__(self, task: int = 0, lambda_index: int = 0) -> Any:
        """The update for a task and a lambda of the grid, float32 [P']. Inputs shared by all tasks, or by all lambdas
        of a task, are computed and converted once."""
        keys = {"benchmark": None, "task": task, "mask_lambda": (task, lambda_index)}
        for name in self._method.needs:
            declared = INPUTS[name]
            key = keys[declared.per]
            if name not in self._inputs or self._inputs[name][0] != key:
                value = declared.value(self._source, task, lambda_index, self._method.chosen)
                self._inputs[name] = key, self._convert(declared, value)
        return self._method(**{name: value for name, (_, value) in self._inputs.items()})
