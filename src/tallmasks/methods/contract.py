"""The `Method` class, and `MethodUpdates`, which reads the inputs of a method and calls it.

The package's docstring explains how to write a method."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.methods import storage_formulas
from tallmasks.methods.code_digests import code_digest
from tallmasks.methods.codec import Codec
from tallmasks.methods.inputs import INPUTS, Input, usage_problem
from tallmasks.methods.merges import Vector
from tallmasks.methods.method_usages import FineTuned, Part, Scaled, Usage
from tallmasks.methods.options import Option, Value, options_for, options_of
from tallmasks.methods.storage_formulas import Shapes, Storage, Storing
from tallmasks.vectors.task_vectors import TaskVector

Group = Literal["paper", "later"]


@dataclass(frozen=True)
class KeptFraction:
    """The fraction of a task's weights that the input ``threshold`` keeps.

    Attributes:
        share: ``(tasks, **options) -> fraction``, for T tasks.
        of_trainable: always a fraction of the P' trainable weights, regardless of `kept_fractions_of` in params.yaml.
    """

    share: Callable[..., float]
    of_trainable: bool = False


@dataclass(frozen=True)
class Method:
    """A row of the results table; see the package's docstring.

    Attributes:
        name: includes the options, its own and its merge's, that are not at their defaults (``ties:keep=0.1``).
        update: the function that computes the update.
        usage: how the update is used.
        order: position in the table.
        title, paper: shown in tables.
        merge: the merge behind ``multi_task_vector``, ``agreement`` and ``mask``.
        storage: bits from T, P' and F, see `tallmasks.methods.storage_formulas` (default: the usage's).
        kept: the fraction that the input ``threshold`` keeps.
        chosen: the values of its own options that are not those of ``update`` and its inputs.
        codec: what a bundle stores of each task, for a method that compresses each task by itself and has bundles.
        is_merge: whether its update is the multi-task vector itself.
        group: "paper" or "later": the entry under `methods` in params.yaml that selects this method.
    """

    name: str
    update: Callable[..., Vector]
    usage: Usage
    order: int
    title: str
    paper: str
    merge: str | None = None
    storage: Storing | None = None
    kept: KeptFraction | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)
    codec: Codec | None = None
    is_merge: bool = False
    group: Group = "paper"

    def __call__(self, **inputs: object) -> Vector:
        """The update from the inputs in ``needs``. Raises TallmasksError if it contains NaN or infinity."""
        wanted = {name: inputs[name] for name in self.needs}
        update = self.update(**wanted, **options_for(self.update, self.chosen))
        if not math.isfinite(abs(update).max()):
            raise TallmasksError(f"method {self.name}: the update holds NaN or infinity; check the checkpoints")
        return update

    @property
    def section(self) -> Part:
        return self.usage.section

    @property
    def tuned(self) -> str | None:
        """The option of its merge that is tuned instead of alpha, if any."""
        return self.usage.tuned if isinstance(self.usage, Scaled) else None

    @property
    def code(self) -> str:
        """The digest of its code, used in the recipes of its evaluations."""
        inputs = {name: needed.find for name, needed in self.all_inputs.items()}
        return code_digest(self.update, self.usage, self.kept, {**inputs, **self.chosen})

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The names of the inputs that ``update`` takes."""
        parameters = inspect.signature(self.update).parameters.values()
        return frozenset(p.name for p in parameters if p.default is p.empty)

    @functools.cached_property
    def all_inputs(self) -> dict[str, Input]:
        """The inputs in ``needs`` and those they are computed from, by name."""
        inputs: dict[str, Input] = {}
        waiting = sorted(self.needs)
        while waiting:
            name = waiting.pop(0)
            if name not in inputs:
                inputs[name] = INPUTS[name]
                waiting += INPUTS[name].of
        return inputs

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        """Its own options by name, without its merge's; the defaults are its own values."""
        inputs = [needed.find for needed in self.all_inputs.values()]
        functions = [self.update, self.kept.share if self.kept else None, *inputs]
        options_of(*functions, self.storage)  # raises ValueError if their defaults differ
        declared = options_of(*functions)
        return {name: replace(one, default=self.chosen.get(name, one.default)) for name, one in declared.items()}

    @property
    def values(self) -> dict[str, Value]:
        """The values of its own options."""
        return {name: option.default for name, option in self.options.items()}

    @property
    def consensus_threshold(self) -> int | None:
        """The threshold k of consensus merging; None for other methods."""
        return int(self.values["k"]) if "agreement" in self.needs and "k" in self.options else None

    @property
    def whole_model(self) -> bool:
        """True if it cannot be computed weight by weight."""
        return "layout" in self.needs

    def threshold(self, vector: TaskVector, tasks: int) -> np.float32:
        """The input ``threshold`` of one of T ``tasks``, from its task vector."""
        assert self.kept is not None
        share = self.kept.share(tasks, **options_for(self.kept.share, self.chosen))
        return vector.threshold(share, of_trainable=self.kept.of_trainable)

    def stored_size(
        self, tasks: int, trainable: int, frozen: int, shapes: Shapes = storage_formulas.NO_SHAPES
    ) -> Storage:
        """Storage for T tasks, P' trainable and F frozen parameters; exact if ``shapes`` is given."""
        assert self.storage is not None
        by_shape = {"shapes": shapes} if "shapes" in options_of(self.storage) else {}
        return self.storage(tasks, trainable, frozen, **by_shape, **options_for(self.storage, self.chosen))

    @property
    def stores_more(self) -> bool:
        """True if its storage is a lower bound."""
        return self.stored_size(1, 1, 1).lower_bound

    @property
    def looks_at_one_task(self) -> bool:
        """True if a task's result is the same in every benchmark."""
        return isinstance(self.usage, FineTuned) or self.needs <= {"pretrained"}

    def __post_init__(self) -> None:
        """Refuses a method that would run, but compute something else than its author means."""
        if self.storage is None:
            object.__setattr__(self, "storage", type(self.usage).storage)
        problem = None
        if self.storage is None:
            problem = "storage is missing; choose a function of tallmasks.methods.storage_formulas"
        elif unknown := self.needs - INPUTS.keys():
            problem = f"unknown inputs {sorted(unknown)}; known inputs: {sorted(INPUTS)}"
        elif (self.merge is not None) != any(needed.merged for needed in self.all_inputs.values()):
            problem = f"give merge if and only if an input depends on it; inputs: {', '.join(sorted(self.all_inputs))}"
        elif self.tuned and not self.is_merge:
            problem = "tuned is only for methods that are a merge alone"
        if problem := problem or usage_problem(self.usage, self.needs, self.all_inputs):
            raise ValueError(f"method {self.name}: {problem}")


def masked_vector(stored_vector: Any, mask: Any) -> Any:
    """m_t * tau_MTL: the update of a row of TALL-masks."""
    return stored_vector * mask


def merged_vector(multi_task_vector: Any) -> Any:
    """tau_MTL itself: the update of a row that is a merge alone."""
    return multi_task_vector


class MethodUpdates:
    """The updates of one method.

    Args:
        source: a `MethodInputs`, or an object with those of its attributes that the method's inputs use.
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
