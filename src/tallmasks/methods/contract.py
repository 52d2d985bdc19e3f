"""What a merge and a method are; the package's docstring says how they are written."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings import Coding
from tallmasks.methods import bits
from tallmasks.methods.bits import Shapes, Storage, Storing
from tallmasks.methods.inputs import INPUTS, Input, misfit
from tallmasks.methods.options import Option, Value, given, options_of
from tallmasks.methods.own_tensors import OwnTensors
from tallmasks.methods.scaled_masks import ScaledMask
from tallmasks.store.errors import TallmasksError
from tallmasks.store.fingerprints import fingerprint_with_parts
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Vector = NDArray[np.float32]
Statistics = Mapping[str, NDArray[np.float32]]
"""What is known of one task's data, by the name of the tensor that it belongs to."""
Section = Literal["merging", "compression"]
Protocol = Literal["fixed", "scaled", "per_task", "masked", "finetuned"]
Counted = Literal["parameters", "trainable"]
Group = Literal["paper", "later"]
PARTS = "tallmasks.methods.rows.parts"
"""What several methods have in common; the code of one is that of its file and of the parts that it imports."""
GRIDS = {"scaled": "scaling_coefficient", "masked": "mask_lambda"}
"""What a protocol chooses on validation data: a key of `grids` in params.yaml."""


@dataclass(frozen=True)
class Place:
    """Values start..stop of a flattened tensor."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Merge:
    """A way to merge task vectors.

    Attributes:
        name: With what is set of its options behind it.
        paper: Where it is from.
        apply: Over weights ``(rows, out, **options)``, which fills out, float32 [n], from T slices of one place,
            float32 [n] each, in a list or one array [T, n]; over places ``(rows, out, place, **options)``, where the
            slices are of one named tensor;
            over tensors ``(stacked, **options) -> merged``, float32 [T, ...] -> [...], for one named tensor at a time.
        file: The file that registers it.
        over: What ``apply`` looks at: single weights, weights and where they are, or one tensor of all tasks.
        named: Over tensors: whether ``apply`` gets the tensor's name as its second argument.
        noisy: Over tensors: whether ``apply`` gets, after these, how large what rounding added to a matrix is, a
            spectral norm; 0 where nobody knows how the checkpoints were rounded.
        look: What a slice has to know of the whole, ``(task_vectors, **options) -> anything``, thresholds for
            instance; ``apply`` gets it as its last positional argument.  Not over tensors.
        statistics: The stage whose artifacts, one a task, it needs beside the checkpoints.  ``look``, where there is
            one, else ``apply``, gets their tensors by name, a mapping a task, as its last positional argument.
        version: Raised when a change outside the file changes what it makes.
        masked_as: The merge that masks are over, where it is another one.
        after: The name of the merge that it goes on from: ``apply(merged, name, **options) -> merged``, float32 of the
            shape that came, for some or all values of one named tensor.  Its ``look`` takes ``(task_vectors, total,
            **options)``, where ``total(measure)`` is the sum over the whole of ``measure(rows, merged)``, an array; see
            :meth:`total`.  Its options are the other's too.
        inner: That merge, with its options; `registry.get_merge` finds it.
        chosen: The options that are not at their defaults.
    """

    name: str
    paper: str
    apply: Callable[..., Any]
    file: Path
    over: Literal["weights", "places", "tensors"] = "weights"
    named: bool = False
    noisy: bool = False
    look: Callable[..., Any] | None = None
    statistics: str | None = None
    version: int = 1
    masked_as: str | None = None
    after: str | None = None
    inner: Merge | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)

    def prepared(self, task_vectors: Sequence[TaskVector], statistics: Sequence[Statistics] = ()) -> Callable[..., Any]:
        """``apply`` with its options and with what it has to know of these task vectors, and of the tasks' data where
        it needs ``statistics``: ``(rows, out)`` over weights, ``(rows, out, place)`` over places, ``(stacked, name)``
        over tensors.

        Raises:
            TallmasksError: it needs statistics, and there are none.
        """
        if self.statistics and not statistics:
            raise TallmasksError(
                f"merge {self.name} needs what the workflow's stage {self.statistics} computes from the tasks' training"
                " data, which checkpoints alone do not give; ask for its row of results/<model>/<benchmark>/field.csv"
            )
        options = given(self.apply, self.chosen)
        if self.inner is not None:
            return self._after(self.inner, self.inner.prepared(task_vectors, statistics), task_vectors)
        known = (statistics,) if self.statistics else ()
        if self.look is not None:
            whole = self.look(task_vectors, *known, **given(self.look, self.chosen))
            return lambda *which: self.apply(*which, whole, **options)
        named = self.named or self.over != "tensors"

        def apply(*which: Any) -> Any:
            noise = [max((vector.noise(which[1]) for vector in task_vectors), default=0.0)] if self.noisy else []
            return self.apply(*(which if named else which[:1]), *noise, *known, **options)

        return apply

    def _after(self, inner: Merge, merged: Callable[..., Any], vectors: Sequence[TaskVector]) -> Callable[..., Any]:
        options, known = given(self.apply, self.chosen), []
        if self.look is not None:
            total = functools.partial(inner.total, vectors, merged)
            known.append(self.look(vectors, total, **given(self.look, self.chosen)))
        if self.over == "tensors":
            return lambda stacked, name: self.apply(merged(stacked, name), name, *known, **options)

        def apply(rows: Sequence[Vector], out: Vector, place: Place) -> None:
            merged(rows, out, *([place] if inner.over == "places" else []))
            out[:] = self.apply(out, place.name, *known, **options)

        return apply

    def total(
        self,
        task_vectors: Sequence[TaskVector],
        prepared: Callable[..., Any],
        measure: Callable[[Sequence[Vector], Vector], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """The sum over the whole of ``measure(rows, merged)``, of T slices and what ``prepared`` makes of them.

        Slices are pieces of tensors, or whole ones where it looks at those.
        """
        found: list[NDArray[np.float64]] = []
        layout = task_vectors[0].layout
        for name, shape, offset in zip(layout.names, layout.shapes, layout.offsets, strict=True):

            def work(part: slice, name: str = name, shape: tuple[int, ...] = shape, offset: int = offset) -> Any:
                rows = [vector.flat[offset + part.start : offset + part.stop] for vector in task_vectors]
                if self.over == "tensors":
                    return measure(rows, prepared(np.stack(rows).reshape(-1, *shape), name))
                out = np.empty(part.stop - part.start, np.float32)
                prepared(rows, out, *([Place(name, part.start, part.stop)] if self.over == "places" else []))
                return measure(rows, out)

            size = math.prod(shape)
            found += kernels.in_pieces(size, work, max(size, 1) if self.over == "tensors" else kernels.PIECE)
        return np.sum(found, axis=0)

    def __call__(self, task_vectors: Sequence[TaskVector], out: Vector, statistics: Sequence[Statistics] = ()) -> None:
        """Fill ``out``, float32 [P'].

        Raises:
            TallmasksError: it holds NaN or infinity then, or it needs statistics and there are none.
        """
        apply = self.prepared(task_vectors, statistics)
        if self.over == "weights":
            kernels.in_pieces(out.size, lambda part: apply([vector.flat[part] for vector in task_vectors], out[part]))
        else:
            parts = [vector.layout.split(vector.flat) for vector in task_vectors]
            for name, view in task_vectors[0].layout.split(out).items():
                rows = [part[name] for part in parts]
                if self.over == "tensors":
                    view[...] = apply(np.stack(rows), name)
                else:
                    _in_places(apply, name, [row.reshape(-1) for row in rows], view.reshape(-1))
        if not kernels.all_finite(out):
            raise TallmasksError(
                f"merge {self.name}: the merged vector holds NaN or infinity, a sum too large for float32 perhaps; see "
                f"{self.file}"
            )

    @property
    def code(self) -> str:
        """What stands for its code in the recipes of what it merges."""
        own = f"{self.version}-{fingerprint_with_parts(self.file, PARTS)}"
        return f"{own}-after-{self.inner.code}" if self.inner else own

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        """Its options by name."""
        return options_of(self.apply, self.look) | (self.inner.options if self.inner else {})

    def __post_init__(self) -> None:
        options_of(self.apply, self.look)  # it refuses a word without its vocabulary
        if self.over == "tensors" and self.look is not None and self.after is None:
            raise ValueError(f"merge {self.name}: look is for merges over weights or places")
        if (self.named or self.noisy) and self.over != "tensors":
            raise ValueError(f"merge {self.name}: named and noisy are for merges over tensors")


def _in_places(apply: Callable[..., Any], name: str, rows: Sequence[Vector], out: Vector) -> None:
    """Fill ``out``, float32 [n], from T vectors of one flattened tensor, piece by piece."""

    def work(part: slice) -> None:
        apply([row[part] for row in rows], out[part], Place(name, part.start, part.stop))

    kernels.in_pieces(out.size, work)


@dataclass(frozen=True)
class Method:
    """A row of the results table; see the package's docstring."""

    name: str
    """With what is set of its options, and of its merge's, behind it."""
    row: int
    """Place in the table: rows are sorted by it."""
    title: str
    section: Section
    paper: str
    protocol: Protocol
    storage: Storing
    """Its bits from T, P' and F; the name of one of `tallmasks.methods.bits` will do."""
    update: Callable[..., Vector]
    merge: str | None = None
    """The merge behind ``multi_task_vector``, ``agreement`` and ``mask``."""
    coefficient: Callable[[int], float] | None = None
    """Protocol ``fixed``: the scaling coefficient for T tasks."""
    coefficients: tuple[float, ...] | None = None
    """Protocol ``scaled``: what is tried instead of `grids.scaling_coefficient` in params.yaml."""
    tuned: str | None = None
    """Protocol ``scaled``: the option of the merge that is tuned in the place of alpha, which is 1; ``coefficients``
    are its values.  Where the option is set, nothing is tuned."""
    unvalidated: float = 0.3
    """Protocol ``scaled``: alpha where there is no validation data to choose it; 0.3 is Ilharco et al.'s for a sum."""
    keep: Callable[..., float] | None = None
    """Input ``threshold``: the fraction of the weights kept, for T tasks."""
    keep_of: Counted = "parameters"
    """What ``keep`` is a fraction of: what `kept_fractions_of` in params.yaml says, or always the P' trainable ones."""
    k: int | None = None
    """Consensus merging: how many tasks' masks must hold a weight for it to be kept; 0 for the merge as it is."""
    over: Literal["weights", "model"] = "weights"
    """What ``update`` looks at: single weights, or the whole model, which asks for the ``layout`` too."""
    scaled_mask: ScaledMask | None = None
    """How its update is stored in a bundle, if it is a mask and a scale."""
    version: int = 1
    """Raised when a change outside its file changes what it gives."""
    file: Path = Path(__file__)
    """The file that registers it."""
    chosen: Mapping[str, Value] = field(default_factory=dict)
    """Its own options that are not at their defaults."""
    group: Group = "paper"
    """What of `methods` in params.yaml it belongs to: "paper", which is `all`, or "later", which is asked for."""

    def __call__(self, **inputs: object) -> Vector:
        """The update from the inputs that it ``needs``.

        Raises:
            TallmasksError: it holds NaN or infinity.
        """
        wanted = {name: inputs[name] for name in self.needs}
        update = self.update(**wanted, **given(self.update, self.chosen))
        if not math.isfinite(abs(update).max()):
            raise TallmasksError(
                f"method {self.name}: its update holds NaN or infinity, which no model can be made of; see {self.file}"
            )
        return update

    @property
    def code(self) -> str:
        """What stands for its code in the recipes of its evaluations."""
        return f"{self.version}-{fingerprint_with_parts(self.file, PARTS)}"

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The names of the inputs that ``update`` takes."""
        parameters = inspect.signature(self.update).parameters.values()
        return frozenset(p.name for p in parameters if p.default is p.empty)

    @functools.cached_property
    def all_inputs(self) -> dict[str, Input]:
        """The inputs that it needs and those that they follow from, by name."""
        found: dict[str, Input] = {}
        waiting = sorted(self.needs)
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found[name] = INPUTS[name]
                waiting += INPUTS[name].of
        return found

    @property
    def stored_inputs(self) -> list[Input]:
        """Those of them that are artifacts, one for each role."""
        found = {needed.role: needed for needed in self.all_inputs.values() if needed.stage}
        return list(found.values())

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        """Its own options by name, without its merge's."""
        return options_of(self.update, self.keep)

    @property
    def own_tensors(self) -> OwnTensors | None:
        """What a bundle stores of each tensor of a task, for a method that shares nothing between tasks."""
        return getattr(self.update, "own_tensors", None)

    def content(self, tensor: Vector, coding: Coding) -> Any:
        """What a coding takes of one tensor [shape] of tau_t; for methods of ``own_tensors``."""
        assert self.own_tensors is not None
        return self.own_tensors.content(tensor, coding, **given(self.update, self.chosen))

    def threshold(self, vector: TaskVector, tasks: int) -> np.float32:
        """The input ``threshold`` of one task of T ``tasks``, from its task vector."""
        assert self.keep is not None
        share = self.keep(tasks, **given(self.keep, self.chosen))
        return vector.threshold(share, of_trainable=self.keep_of == "trainable")

    def grid(self, grids: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
        """The values that are tried on validation data; none where nothing is chosen."""
        if self.coefficients is not None:
            return self.coefficients
        return tuple(grids[GRIDS[self.protocol]]) if self.protocol in GRIDS else ()

    def stored(self, tasks: int, trainable: int, frozen: int, shapes: Shapes = bits.NO_SHAPES) -> Storage:
        """What it stores for T tasks, P' and F; exactly with the trainable tensors' shapes by name (see `bits`)."""
        by_shape = {"shapes": shapes} if "shapes" in options_of(self.storage) else {}
        return self.storage(tasks, trainable, frozen, **by_shape, **given(self.storage, self.chosen))

    @property
    def stores_more(self) -> bool:
        """Whether its bits are a lower bound."""
        return self.storage(1, 1, 1).lower_bound

    @property
    def looks_at_one_task(self) -> bool:
        """Whether a task's result is the same in every benchmark: it follows from the pretrained model, or from the
        task's own checkpoint, alone."""
        return self.protocol == "finetuned" or self.needs <= {"pretrained"}

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name.partition(":")[0]):
            raise ValueError(f"method {self.name!r}: expected a name of small letters, digits and _")
        options_of(self.update, self.keep)  # as for a merge
        for parameter in inspect.signature(self.update).parameters.values():
            has_default = parameter.default is not parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
            if has_default and parameter.name not in getattr(self.update, "keywords", {}):
                raise ValueError(f"method {self.name}: options are keyword-only; write `*, {parameter.name}=...`")
        if isinstance(self.storage, str):
            if self.storage not in bits.KNOWN:
                raise ValueError(f"method {self.name}: unknown storage {self.storage}; there is {sorted(bits.KNOWN)}")
            object.__setattr__(self, "storage", bits.KNOWN[self.storage])
        if unknown := self.needs - INPUTS.keys():
            raise ValueError(f"method {self.name} asks for {sorted(unknown)}; there is {sorted(INPUTS)}")
        if problem := misfit(self.protocol, self.needs, self.all_inputs):
            raise ValueError(f"method {self.name}: {problem}")
        merged = any(needed.stage and not needed.each for needed in self.all_inputs.values())
        stated = {
            "merge": (self.merge is not None, merged),
            "keep": (self.keep is not None, "threshold" in self.needs),
            "coefficient": (self.coefficient is not None, self.protocol == "fixed"),
            "protocol masked": (self.protocol == "masked", "mask" in self.needs),
            "over": (self.over == "model", "layout" in self.needs),
        }
        if wrong := [key for key, (given, needed) in stated.items() if given != needed]:
            needed = ", ".join(sorted(self.all_inputs)) or "no inputs"
            raise ValueError(
                f"method {self.name}: {', '.join(wrong)} must be given exactly where it is used; the parameters of its "
                f"function, and what they follow from (`of`), are {needed}"
            )
        if self.tuned and (self.coefficients is None or self.needs != {"multi_task_vector"}):
            raise ValueError(f"method {self.name}: tuned needs coefficients, and a function of multi_task_vector alone")
        if self.coefficients is not None and self.protocol != "scaled":
            raise ValueError(f"method {self.name}: coefficients are for the protocol scaled alone")
        for key, kind in {"protocol": Protocol, "section": Section, "group": Group}.items():
            if getattr(self, key) not in (allowed := get_args(kind)):
                raise ValueError(f"method {self.name}: {key} is {getattr(self, key)!r}; expected {', '.join(allowed)}")
