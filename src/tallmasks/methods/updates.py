"""Computes the updates of a method from its inputs, for whole models or for one piece of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallmasks.methods.contract import Method
from tallmasks.methods.inputs import INPUTS, Input


class Updates:
    """The updates of one method.

    Args:
        source: a `tallmasks.methods.Source`, or an object with those of its attributes that the method's inputs use.
        convert: converts the value of an input for the method, for example to a GPU tensor (default: unchanged).
    """

    def __init__(
        self, method: Method, source: Any, convert: Callable[[Input, Any], Any] = lambda declared, value: value
    ) -> None:
        self._method, self._source, self._convert = method, source, convert
        self._inputs: dict[str, tuple[object, Any]] = {}

    def __call__(self, task: int = 0, lambda_index: int = 0) -> Any:
        """The update for a task and an index of the lambda grid, float32 [P'].

        An input that is the same for all tasks, or for all lambdas of a task, is computed once.
        """
        keys = {"benchmark": None, "task": task, "mask_lambda": (task, lambda_index)}
        for name in self._method.needs:
            declared = INPUTS[name]
            key = keys[declared.per]
            if name not in self._inputs or self._inputs[name][0] != key:
                value = declared.value(self._source, task, lambda_index, self._method.chosen)
                self._inputs[name] = key, self._convert(declared, value)
        return self._method(**{name: value for name, (_, value) in self._inputs.items()})
