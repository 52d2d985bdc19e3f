"""The registry of merges and methods: each file of this folder registers its own, and nothing else changes.

A *merge* turns the task vectors of a benchmark into one multi-task vector. A *method* is a row of the results
table. Its function names, as parameters, what it is computed from (see ``INPUTS``), and returns an update:
float32, element by element, so that it works on a slice as on the whole, and written with operators (``*``, ``>=``,
``abs``), so that it works on a GPU's tensors as on NumPy's arrays. Its protocol says how the update is used:

=========  ===================================================================================================
fixed      one model, theta_0 + coefficient(T) * update
scaled     one model, theta_0 + alpha * update; alpha is the best on validation data, over the whole benchmark
per_task   a model per task, theta_0 + update; nothing to choose
masked     a model per task, theta_0 + update; mask_lambda is the best on validation data, for that task alone
finetuned  the checkpoints themselves; theta_0 + update is the same up to rounding
=========  ===================================================================================================
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from tallmasks.methods.bits import StorageKind
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.fingerprints import fingerprint_of_file
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Vector = NDArray[np.float32]
Section = Literal["merging", "compression"]
Protocol = Literal["fixed", "scaled", "per_task", "masked", "finetuned"]
Counted = Literal["parameters", "trainable"]
Entry = TypeVar("Entry")

INPUTS = {
    "pretrained": "theta_0 over the trainable tensors, float32 [P']",
    "task_vector": "tau_t, float32 [P']",
    "multi_task_vector": "tau_MTL of the method's merge, float32 [P']",
    "agreement": "n(p), how many tasks' selected masks hold each weight, uint8 [P']",
    "mask": "m_t for the mask_lambda at hand, bool [P']",
    "threshold": "the magnitude from which on tau_t is in its top keep(T), float32 scalar",
}


@dataclass(frozen=True)
class Merge:
    """A way to merge task vectors: ``apply(task_vectors, out)`` fills ``out``, float32 [P']."""

    name: str
    paper: str
    apply: Callable[[Sequence[TaskVector], Vector], None]
    file: Path
    """The file that registers it."""

    def __call__(self, task_vectors: Sequence[TaskVector], out: Vector) -> None:
        """Fill ``out``, float32 [P'].

        Raises:
            TallmasksError: it holds NaN or infinity then.
        """
        self.apply(task_vectors, out)
        if not kernels.all_finite(out):
            raise TallmasksError(
                f"merge {self.name}: the merged vector holds NaN or infinity, a sum too large for float32 perhaps; see "
                f"{self.file}"
            )

    @property
    def code(self) -> str:
        """The digest of the code of ``file``, which enters the recipes of what it merges."""
        return fingerprint_of_file(self.file)


@dataclass(frozen=True)
class Method:
    """A row of the results table; see the module's docstring."""

    name: str
    row: int
    """Place in the table: rows are sorted by it."""
    title: str
    section: Section
    paper: str
    protocol: Protocol
    storage: StorageKind
    update: Callable[..., Vector]
    merge: str | None = None
    """The merge behind ``multi_task_vector``, ``agreement`` and ``mask``."""
    coefficient: Callable[[int], float] | None = None
    """Protocol ``fixed``: the scaling coefficient for T tasks."""
    keep: Callable[[int], float] | None = None
    """Input ``threshold``: the fraction of the weights kept, for T tasks."""
    keep_of: Counted = "parameters"
    """What ``keep`` is a fraction of: what `kept_fractions_of` in params.yaml says, or always the P' trainable ones."""
    k: int | None = None
    """Consensus merging: how many tasks' masks must hold a weight for it to be kept; 0 for the merge as it is."""
    file: Path = Path(__file__)
    """The file that registers it."""

    def __call__(self, **inputs: object) -> Vector:
        """The update from the inputs that it ``needs``.

        Raises:
            TallmasksError: it holds NaN or infinity.
        """
        update = self.update(**{name: inputs[name] for name in self.needs})
        if not math.isfinite(abs(update).max()):
            raise TallmasksError(
                f"method {self.name}: its update holds NaN or infinity, which no model can be made of; see {self.file}"
            )
        return update

    @property
    def code(self) -> str:
        """The digest of the code of ``file``, which enters the recipes of its evaluations."""
        return fingerprint_of_file(self.file)

    @property
    def needs(self) -> frozenset[str]:
        """The keys of ``INPUTS`` that ``update`` takes."""
        parameters = inspect.signature(self.update).parameters.values()
        return frozenset(p.name for p in parameters if p.default is p.empty)

    def threshold(self, vector: TaskVector, tasks: int) -> np.float32:
        """The input ``threshold`` of one task of T ``tasks``, from its task vector."""
        assert self.keep is not None
        return vector.threshold(self.keep(tasks), of_trainable=self.keep_of == "trainable")

    @property
    def looks_at_one_task(self) -> bool:
        """Whether a task's result is the same in every benchmark: no merge, nothing that depends on T."""
        return self.merge is None and self.keep is None

    def __post_init__(self) -> None:
        if unknown := self.needs - INPUTS.keys():
            raise ValueError(f"method {self.name} asks for {sorted(unknown)}; there is {sorted(INPUTS)}")
        merged = bool(self.needs & {"multi_task_vector", "agreement", "mask"})
        stated = {
            "merge": (self.merge is not None, merged),
            "keep": (self.keep is not None, "threshold" in self.needs),
            "coefficient": (self.coefficient is not None, self.protocol == "fixed"),
            "protocol masked": (self.protocol == "masked", "mask" in self.needs),
        }
        if wrong := [key for key, (given, needed) in stated.items() if given != needed]:
            raise ValueError(f"method {self.name}: {', '.join(wrong)} must be given exactly where it is used")
        if self.protocol not in get_args(Protocol) or self.section not in get_args(Section):
            raise ValueError(f"method {self.name}: unknown protocol {self.protocol} or section {self.section}")


_methods: dict[str, Method] = {}
_merges: dict[str, Merge] = {}


def method(**fields) -> Callable[[Callable[..., Vector]], Callable[..., Vector]]:
    """Decorator: register a function as the update of a :class:`Method` with these fields."""

    def register(update: Callable[..., Vector]) -> Callable[..., Vector]:
        _add(_methods, Method(update=update, file=_registering_file(), **fields))
        return update

    return register


def merge(name: str, *, paper: str) -> Callable:
    """Decorator: register a function (task_vectors, out) as a :class:`Merge`."""

    def register(apply: Callable[[Sequence[TaskVector], Vector], None]) -> Callable:
        _add(_merges, Merge(name, paper, apply, _registering_file()))
        return apply

    return register


def get(name: str) -> Method:
    """A method by name. Raises TallmasksError with the nearest valid name."""
    return _look_up("method", name, _methods)


def get_merge(name: str) -> Merge:
    """A merge by name. Raises TallmasksError with the nearest valid name."""
    return _look_up("merge", name, _merges)


def names() -> tuple[str, ...]:
    """Every method, in the order of the table."""
    return tuple(sorted(_methods, key=lambda name: (_methods[name].row, name)))


def merge_names() -> tuple[str, ...]:
    """Every merge, sorted."""
    return tuple(sorted(_merges))


def masking(merge: str) -> Method:
    """The TALL-mask method on a merge: the masks that it selects are those that a consensus counts."""
    return next(method for method in map(get, names()) if method.protocol == "masked" and method.merge == merge)


def consensus(merge: str) -> Method:
    """The consensus method on a merge; the first row of the table where there are several."""
    return next(method for method in map(get, names()) if "agreement" in method.needs and method.merge == merge)


def at_threshold(merge: str, k: int) -> Method | None:
    """The row of the table that is consensus merging at threshold k; None if there is none."""
    return next((method for method in map(get, names()) if (method.merge, method.k) == (merge, k)), None)


def _registering_file() -> Path:
    """The file whose code calls the decorator that asks."""
    return Path(sys._getframe(2).f_code.co_filename)


def _add(registry: dict, entry: Method | Merge) -> None:
    if entry.name in registry:
        raise ValueError(f"{entry.name} is registered twice")
    registry[entry.name] = entry


def _look_up(what: str, name: str, registry: Mapping[str, Entry]) -> Entry:
    if name not in registry:
        known = sorted(registry)
        raise TallmasksError(f"There is no {what} {name!r}{nearest(name, known)}. Known: {', '.join(known)}.")
    return registry[name]


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
