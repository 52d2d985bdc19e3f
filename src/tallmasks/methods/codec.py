"""Methods that compress each tensor of a task separately, with one definition for evaluation and bundles."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallmasks.bundles.codings import Coding, Dense
from tallmasks.io.tensor_files import Layout


@dataclass(frozen=True)
class Codec:
    """What :func:`by_tensor` adds to a function.

    Attributes:
        coding: ``(shape, *, options) -> coding``, how a tensor is stored. It can have the parameters ``name`` and
            ``tasks`` too.
        find: the decorated function, ``(tensor, coding, **options) -> content``.
    """

    coding: Callable[..., Coding]
    find: Callable[..., Any]

    @property
    def takes_tasks(self) -> bool:
        return "tasks" in inspect.signature(self.coding).parameters

    def codings(self, layout: Layout, tasks: int | None, **options: Any) -> dict[str, Coding]:
        """The coding of every tensor. ``tasks``: T, used only if ``takes_tasks``."""
        more = {**({"tasks": tasks} if self.takes_tasks else {}), **_of(self.coding, options)}
        by_name = "name" in inspect.signature(self.coding).parameters
        return {
            name: self.coding(tuple(shape), **more, **({"name": name} if by_name else {}))
            for name, shape in layout.by_name.items()
        }

    def content(self, tensor: Any, coding: Coding, **options: Any) -> Any:
        """The content of a coding, from one tensor of tau_t (array or GPU tensor). Scalars are passed as [1], because
        NumPy operations on [] return plain floats."""
        if isinstance(coding, Dense):
            return tensor
        return self.find(tensor if tensor.ndim else tensor.reshape(1), coding, **_of(self.find, options))

    def update(self, task_vector: Any, layout: Layout, tasks: int | None, **options: Any) -> Any:
        """The update of a whole task vector, float32 [P']."""
        out = task_vector.copy() if isinstance(task_vector, np.ndarray) else task_vector.clone()
        whole, tensors = layout.split(out), layout.split(task_vector)
        for name, coding in self.codings(layout, tasks, **options).items():
            whole[name][...] = coding.values(self.content(tensors[name], coding, **options))
        return out


def _of(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    names = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in names}


def by_tensor(coding: Callable[..., Coding]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator, placed below `method(...)`: turns a function that compresses one tensor into a method.

    The function is called for each tensor that is not stored whole. Its options and those of ``coding`` become the
    method's options. See `Codec` for the parameters of both.
    """

    def decorate(find: Callable[..., Any]) -> Callable[..., Any]:
        codec = Codec(coding, find)

        @functools.wraps(find)
        def update(task_vector: Any, layout: Layout, tasks: int | None = None, **options: Any) -> Any:
            return codec.update(task_vector, layout, tasks, **options)

        both = [p for f in (coding, find) for p in inspect.signature(f).parameters.values()]
        options = [p for p in both if p.kind is p.KEYWORD_ONLY]
        needs = ("task_vector", "layout", *(["tasks"] if codec.takes_tasks else []))
        inputs = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in needs]
        vars(update).update(codec=codec, __signature__=inspect.Signature([*inputs, *options]))
        update.__annotations__ = {option.name: option.annotation for option in options}
        return update

    return decorate
