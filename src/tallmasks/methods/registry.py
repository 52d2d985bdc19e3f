"""Merges and methods by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tallmasks.masks.consensus import keep_agreed
from tallmasks.masks.mask_bundles import apply_mask
from tallmasks.methods import options
from tallmasks.methods.contract import Group, Merge, Method, Vector
from tallmasks.methods.options import Value
from tallmasks.store.errors import TallmasksError, nearest

Entry = TypeVar("Entry")

GROUPS: dict[str, Group] = {"all": "paper", "paper": "paper", "later": "later"}
"""Words that `methods` in params.yaml takes in the place of names, and the group of each."""

_methods: dict[str, Method] = {}
_merges: dict[str, Merge] = {}
_followed: dict[str, Callable[[Method], tuple[Method, Merge]]] = {}
"""Rows that every row of a merge has behind it, by how their names begin; no list names them, but they can be asked
for."""


def method(**fields: Any) -> Callable[[Callable[..., Vector]], Callable[..., Vector]]:
    """Decorator: register a function as the update of a :class:`Method` with these fields."""

    def register(update: Callable[..., Vector]) -> Callable[..., Vector]:
        _add(_methods, Method(update=update, file=_registering_file(), **fields))
        return update

    return register


def merge(name: str, *, paper: str, **fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function as a :class:`Merge` with these fields."""

    def register(apply: Callable[..., Any]) -> Callable[..., Any]:
        _add(_merges, Merge(name, paper, apply, _registering_file(), **fields))
        return apply

    return register


def after_every_merge(
    prefix: str, *, title: str, update: Callable[..., Vector], look: Callable[..., Any] | None = None, **fields: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function as what goes on (``after``) from the merge of every row that is a merge alone.

    The row `<prefix>_<name>`, with these fields and the other's ``title`` in its own, is there for whoever names it; no
    group of rows has it.
    """
    file = _registering_file()

    def register(apply: Callable[..., Any]) -> Callable[..., Any]:
        def make(row: Method) -> tuple[Method, Merge]:
            name, of = f"{prefix}_{row.name}", title.format(row.title)
            return (
                Method(name=name, row=row.row, title=of, update=update, merge=name, file=file, **fields),
                Merge(name, fields["paper"], apply, file, look=look, after=row.merge),
            )

        _followed[prefix] = make
        return apply

    return register


def masking_row(merge: str, *, row: int, title: str) -> None:
    """Register the TALL-mask method on a merge that has none, `tall_mask_<merge>`: a row that no paper has."""
    _methods_on(
        merge,
        f"tall_mask_{merge}",
        update=apply_mask,
        row=row,
        title=title,
        section="compression",
        paper="Wang et al. 2024, Eq. 5",
        protocol="masked",
        storage="masked",
    )


def consensus_row(merge: str, *, row: int, title: str, k: int = 2) -> None:
    """Register the consensus method on a merge that has masks, `consensus_<merge>`: a row that no paper has."""
    _methods_on(
        merge,
        f"consensus_{merge}",
        update=functools.partial(keep_agreed, k=k),
        row=row,
        title=title,
        section="merging",
        paper="Wang et al. 2024, Eq. 8 and 9",
        protocol="scaled",
        storage="single",
        k=k,
    )


def _methods_on(merge: str, name: str, **fields: Any) -> None:
    _add(_methods, Method(name=name, merge=merge, group="later", file=_registering_file(), **fields))


@functools.cache
def get(spec: str) -> Method:
    """A method by name, as ``ties``, or by name and options, as ``ties:keep=0.1``; a merge's options are its methods'.

    Raises:
        TallmasksError: there is no such method or option (with the nearest valid name), or the value is not allowed.
    """
    name, texts = options.read(spec)
    found = _method(name)
    if not texts:
        return found
    merged = get_merge(found.merge).options if found.merge else {}
    chosen = options.chosen_from(texts, merged | found.options, f"method {name}")
    for_merge = {key: value for key, value in chosen.items() if key in merged}
    said = ", ".join(f"{key} = {value}" for key, value in sorted(chosen.items()))
    if found.tuned in chosen:
        found = replace(found, tuned=None, coefficients=(1.0,))
    return replace(
        found,
        name=options.written(name, chosen),
        title=f"{found.title} ({said})" if said else found.title,
        merge=options.written(found.merge, for_merge) if found.merge else None,
        chosen={key: value for key, value in chosen.items() if key in found.options},
    )


@functools.cache
def get_merge(spec: str) -> Merge:
    """A merge by name, with options behind it or not.  Raises as `get`."""
    name, texts = options.read(spec)
    found = _merge_after(_merge(name), {})
    chosen = options.chosen_from(texts, found.options, f"merge {name}")
    return _merge_after(replace(found, name=options.written(name, chosen), chosen=chosen), chosen) if chosen else found


def _merge_after(found: Merge, chosen: Mapping[str, Value]) -> Merge:
    """A merge with the one that it goes on from, if it does, and the options of that."""
    if found.after is None:
        return found
    inner = get_merge(found.after)
    inner = get_merge(options.written(found.after, {key: chosen[key] for key in chosen if key in inner.options}))
    over: Any = "tensors" if inner.over == "tensors" else "places"
    return replace(found, inner=inner, over=over, statistics=inner.statistics)


def _method(name: str) -> Method:
    if made := _following(name):
        return made[0]
    return _look_up("method", name, _methods)


def _merge(name: str) -> Merge:
    if made := _following(name):
        return made[1]
    if name not in _merges and name in _methods and (own := _methods[name].merge):
        raise TallmasksError(f"There is no merge {name!r}; the method {name} takes {own!r}")
    return _look_up("merge", name, _merges)


def followed(name: str) -> str | None:
    """The row that the row of a name goes on from, if it is of those `after_every_merge`."""
    for prefix in _followed:
        before, _, rest = name.partition(f"{prefix}_")
        if not before and name not in _methods and rest in _methods and _merged_alone(_methods[rest]):
            return rest
    return None


def _following(name: str) -> tuple[Method, Merge] | None:
    """The row of a name, and its merge, if it goes on from another row."""
    row = followed(name)
    return _followed[name.removesuffix(f"_{row}")](_methods[row]) if row else None


def _merged_alone(method: Method) -> bool:
    """Whether a row is a merge and nothing more, so that another can go on from it."""
    return method.section == "merging" and method.needs == {"multi_task_vector"} and method.tuned is None


def with_options(name: str, chosen: Mapping[str, Value]) -> str:
    """A merge with options, as `get_merge` takes it.  Raises as `get`."""
    found = get_merge(name)
    return options.written(name, options.chosen_from(chosen, found.options, f"merge {name}"))


def spec_of(entry: str | Mapping[str, Mapping[str, Value]], where: str = "params.yaml: methods:") -> str:
    """A row of `methods` in params.yaml by its name: a name, or a name with options, ``{ties: {keep: 0.1}}``.

    ``where`` is what an error begins with.

    Raises:
        TallmasksError: as `get`.
    """
    if isinstance(entry, str):
        return get(entry).name
    ((name, chosen),) = entry.items()
    found = _method(name)
    merged = get_merge(found.merge).options if found.merge else {}
    return options.written(name, options.chosen_from(chosen, merged | found.options, f"{where} {name}"))


def slug(spec: str) -> str:
    """A name as it stands in file names."""
    return spec.replace(":", "-").replace(",", "-").replace("=", "")


def names(group: Group | None = None) -> tuple[str, ...]:
    """Every method, or those of a group, in the order of the table."""
    found = [name for name, method in _methods.items() if group in (None, method.group)]
    return tuple(sorted(found, key=lambda name: (_methods[name].row, name)))


def specs_of(entries: str | Sequence[str | Mapping[str, Mapping[str, Value]]]) -> tuple[str, ...]:
    """`methods` of params.yaml as the rows that it asks for: words of `GROUPS`, and entries of `spec_of`, in order.

    Raises:
        TallmasksError: as `get`.
    """
    found: list[str] = []
    for entry in [entries] if isinstance(entries, str) else entries:
        found += names(GROUPS[entry]) if isinstance(entry, str) and entry in GROUPS else [spec_of(entry)]
    return tuple(found)


def merge_names() -> tuple[str, ...]:
    """Every merge, sorted."""
    return tuple(sorted(_merges))


def kept_fractions() -> tuple[float, ...]:
    """The fractions that merges and methods keep by default: every task vector carries their exact thresholds, so that
    no later step searches for them."""
    entries: list[Merge | Method] = [*_merges.values(), *_methods.values()]
    return tuple(sorted({float(entry.options["keep"].default) for entry in entries if "keep" in entry.options}))


def code(rows: Iterable[str] = (), merges: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """What stands for the code of some methods and merges in recipes: one that is edited is another one."""
    found = {
        "methods": {name: get(name).code for name in rows},
        "merges": {name: get_merge(name).code for name in merges},
    }
    return {what: codes for what, codes in found.items() if codes}


def tuned_merge(method: Method, value: float) -> str:
    """The merge of a method whose merge has a tuned option, with a value for that."""
    name, texts = options.read(str(method.merge))
    return with_options(name, {**texts, str(method.tuned): value})


def statistics_behind(method: Method) -> str | None:
    """The stage of what a method's merge has to know of the tasks' data, if it has to."""
    return get_merge(method.merge).statistics if method.merge else None


def needing(statistic: str) -> tuple[str, ...]:
    """The methods whose merge needs a statistic."""
    return tuple(name for name in names() if statistics_behind(get(name)) == statistic)


def masking(merge: str) -> Method:
    """The TALL-mask method on a merge: the masks that it selects are those that a consensus counts.

    Raises:
        TallmasksError: there is none.
    """
    return _first_on(merge, lambda method: method.protocol == "masked", "masking_row")


def masks_over(spec: str) -> Method:
    """The method whose masks, or own tensors, a bundle holds for a row of the table: itself, or the TALL-mask method on
    the merge that the row is (TIES: on the disjoint sum).

    Raises:
        TallmasksError: there is none.
    """
    if (found := _masks_over(get(spec))) is None:
        raise TallmasksError(
            f"{spec} has no masks, nor are there any over it; expected {', '.join(names_with_masks())}"
        )
    return found


def names_with_masks() -> tuple[str, ...]:
    """The methods that `masks_over` takes, in the order of the table."""
    return tuple(name for name in names() if _masks_over(get(name)))


def _masks_over(method: Method) -> Method | None:
    if method.protocol == "masked" or method.scaled_mask is not None or method.own_tensors is not None:
        return method
    if method.merge is None or not _merged_alone(method) or method.coefficient is not None:
        return None  # masks of a merge's own are not those of a mean, of a consensus or of another mask over it
    merged = get_merge(method.merge)
    name, texts = options.read(merged.name)
    on = options.written(merged.masked_as or name, options.chosen_from(texts, merged.options, name))
    return next(iter(_on(on, lambda method: method.protocol == "masked")), None)


def consensus(merge: str) -> Method:
    """The consensus method on a merge; the first row of the table where there are several.  Raises as `masking`."""
    return _first_on(merge, lambda method: "agreement" in method.needs, "consensus_row")


def at_threshold(merge: str, k: int) -> Method | None:
    """The row of the table that is consensus merging at threshold k; None if there is none."""
    return next(iter(_on(merge, lambda method: method.k == k)), None)


def _first_on(merge: str, wanted: Callable[[Method], bool], registering: str) -> Method:
    if found := _on(merge, wanted):
        return found[0]
    name, _ = options.read(merge)
    raise TallmasksError(
        f"merge {name}: there is no {registering.removesuffix('_row')} row on it; add one by "
        f"{registering}({name!r}, row=..., title=...) in {Path(__file__).parent / 'rows' / 'later_masks.py'}"
    )


def _on(merge: str, wanted: Callable[[Method], bool]) -> Sequence[Method]:
    """The methods on a merge, with its options, that are wanted."""
    name, texts = options.read(merge)
    chosen = options.chosen_from(texts, get_merge(name).options, f"merge {name}")
    found = [method for method in map(get, names()) if method.merge == name and wanted(method)]
    return [get(options.written(method.name, chosen)) for method in found]


def _registering_file() -> Path:
    """The file whose code calls the function of this module that asks, or that this was called by."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Path(frame.f_code.co_filename)


def _add(registry: dict[str, Any], entry: Method | Merge) -> None:
    if entry.name in GROUPS:
        raise ValueError(f"{entry.name} is a word for several methods; expected another name")
    if entry.name in registry:
        raise ValueError(f"{entry.name} is registered twice: by {registry[entry.name].file} and {entry.file}")
    if isinstance(entry, Method):
        for other in _methods.values():
            if other.row == entry.row:
                raise ValueError(
                    f"row={entry.row} of method {entry.name} in {entry.file} is that of {other.name} in {other.file}; "
                    "give it another number"
                )
    registry[entry.name] = entry


def _look_up(what: str, name: str, registry: Mapping[str, Entry]) -> Entry:
    if name not in registry:
        known = sorted(registry)
        raise TallmasksError(f"There is no {what} {name!r}{nearest(name, known)}. Known: {', '.join(known)}.")
    return registry[name]
