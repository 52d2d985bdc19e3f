"""Registry of merges and methods by name."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from tallmasks.errors import TallmasksError, nearest
from tallmasks.methods import options, rows
from tallmasks.methods.code_digests import code_digest
from tallmasks.methods.codec import Codec
from tallmasks.methods.contract import Group, Method, merged_vector
from tallmasks.methods.merges import Merge, Statistic, Vector
from tallmasks.methods.method_usages import Fixed, Masked, Scaled, Usage
from tallmasks.methods.options import Option, Value

Entry = TypeVar("Entry", Merge, Method)

GROUPS: tuple[Group, ...] = get_args(Group)
"""Groups of methods, which can be listed under `methods` in params.yaml like names."""

_methods: dict[str, Method] = {}
_merges: dict[str, Merge] = {}


def method(**fields: Any) -> Callable[[Callable[..., Vector] | Codec], Any]:
    """Decorator: registers a function, or the result of `quantizer`, as the update of a :class:`Method` with these
    fields."""

    def register(update: Callable[..., Vector] | Codec) -> Any:
        own = {"update": update.update(), "codec": update} if isinstance(update, Codec) else {"update": update}
        _add("method", _methods, Method(**own, **fields))
        return update

    return register


def merge(name: str, **fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: registers a function as a :class:`Merge` with these fields."""

    def register(apply: Callable[..., Any]) -> Callable[..., Any]:
        _add("merge", _merges, Merge(name, apply, **fields))
        return apply

    return register


def merged_row(
    name: str, *, order: int, title: str, paper: str, merge: str = "", usage: Usage | None = None, **fields: Any
) -> None:
    """Registers a method that is a merge alone (default merge: ``name``; default usage: alpha is tuned)."""
    fields |= {"order": order, "title": title, "paper": paper, "merge": merge or name, "usage": usage or Scaled()}
    method(name=name, is_merge=True, **fields)(merged_vector)


@functools.cache
def get(spec: str) -> Method:
    """A method by name, optionally with options of its own or of its merge: ``ties``, ``ties:keep=0.1``.

    Raises TallmasksError for an unknown method or option, suggesting the nearest name, or a value that is not allowed.
    """
    name, texts = options.parse_spec(spec)
    plain = _look_up("method", name, _methods)
    chosen = options.chosen_from(texts, all_options(plain), f"method {name}")
    if not chosen:
        return plain
    if isinstance(plain.usage, Scaled) and plain.tuned in chosen:
        plain = replace(plain, usage=replace(plain.usage, tuned=None, values=(1.0,)))
    of_merge = get_merge(plain.merge).options if plain.merge else {}
    for_merge = {key: value for key, value in chosen.items() if key in of_merge}
    settings = ", ".join(f"{key} = {value}" for key, value in sorted(chosen.items()))
    return replace(
        plain,
        name=options.written(name, chosen),
        title=f"{plain.title} ({settings})",
        merge=options.written(plain.merge, for_merge) if plain.merge else None,
        chosen={**plain.chosen, **{key: value for key, value in chosen.items() if key in plain.options}},
    )


@functools.cache
def get_merge(spec: str) -> Merge:
    """A merge by name, optionally with options. Raises like `get`."""
    name, texts = options.parse_spec(spec)
    if name not in _merges and name in _methods and (own := _methods[name].merge):
        raise TallmasksError(f"There is no merge {name!r}; the method {name} uses the merge {own!r}")
    plain = _look_up("merge", name, _merges)
    chosen = options.chosen_from(texts, plain.options, f"merge {name}")
    return replace(plain, name=options.written(name, chosen), chosen=chosen) if chosen else plain


def with_options(name: str, chosen: Mapping[str, Value]) -> str:
    """The name of a merge with options, for `get_merge`. Raises like `get`."""
    return options.written(name, options.chosen_from(chosen, get_merge(name).options, f"merge {name}"))


def with_option(method: Method, name: str, value: Value) -> Method:
    """A method with one more option. Raises like `get`."""
    plain, texts = options.parse_spec(method.name)
    return get(options.written(plain, {**texts, name: value}))


def spec_of(entry: str | Mapping[str, Mapping[str, Value]], where: str = "params.yaml: methods:") -> str:
    """The spec of an entry of `methods` in params.yaml: a name, or a name with options, ``{ties: {keep: 0.1}}``.

    Raises like `get`, with ``where`` before the message.
    """
    (spec, chosen), *_ = [(entry, {})] if isinstance(entry, str) else entry.items()
    name, texts = options.parse_spec(spec)
    there = all_options(_look_up("method", name, _methods, where=where))
    chosen = chosen or texts
    return options.written(name, options.chosen_from(chosen, there, f"{where} {name}"))


def all_options(method: Method) -> dict[str, Option]:
    return {**method.options, **(get_merge(method.merge).options if method.merge else {})}


def slug(spec: str) -> str:
    """A spec as it appears in file names."""
    return spec.replace(":", "-").replace(",", "-").replace("=", "")


def names(group: Group | None = None) -> tuple[str, ...]:
    """All methods, or those of a group, in table order."""
    members = [name for name, method in _methods.items() if group in (None, method.group)]
    return tuple(sorted(members, key=lambda name: (_methods[name].order, name)))


def specs_of(entries: str | Sequence[str | Mapping[str, Mapping[str, Value]]]) -> tuple[str, ...]:
    """The specs of `methods` in params.yaml: groups and entries of `spec_of`. Raises like `get`."""
    specs: list[str] = []
    for entry in [entries] if isinstance(entries, str) else entries:
        group = next((group for group in GROUPS if group == entry), None)
        specs += names(group) if group else [spec_of(entry)]
    return tuple(specs)


def merge_names() -> tuple[str, ...]:
    return tuple(sorted(_merges))


def code(methods: Iterable[str] = (), merges: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """Code digests of methods and merges, for recipes."""
    codes = {
        "methods": {name: get(name).code for name in methods},
        "merges": {name: get_merge(name).code for name in merges},
    }
    return {what: of_each for what, of_each in codes.items() if of_each}


def table_digests(methods: Iterable[str]) -> dict[str, str]:
    """Digests of what tables show of each method besides its results, for recipes."""
    entries = {name: get(name) for name in methods}
    return {name: code_digest(one.order, one.title, one.paper, one.storage, one.tuned) for name, one in entries.items()}


def tuned_merge(method: Method, value: float) -> str:
    """The spec of a method's merge with its tuned option set to ``value``."""
    name, texts = options.parse_spec(str(method.merge))
    return with_options(name, {**texts, str(method.tuned): value})


def statistics_behind(method: Method) -> Statistic | None:
    """What a method's merge needs of the tasks' data; None if it needs only checkpoints."""
    return get_merge(method.merge).statistics if method.merge else None


def data_needed(method: Method) -> str:
    """The data that a method needs besides the checkpoints, in words."""
    chosen = []
    if isinstance(method.usage, Masked) or "agreement" in method.all_inputs:
        chosen.append("lambda")
    if isinstance(method.usage, Scaled) and method.usage.values != (1.0,):
        chosen.append(method.tuned or "alpha")
    validation = [f"validation data for {' and '.join(chosen)}"] if chosen else []
    data = statistics_behind(method)
    return "; ".join([*validation, *([data.meaning] if data else [])]) or "nothing"


def needing(statistic: Statistic) -> tuple[str, ...]:
    """The methods with a merge that needs a statistic."""
    return tuple(name for name in names() if statistics_behind(get(name)) == statistic)


def masking(merge: str) -> Method:
    """The first TALL-mask method on a merge. Raises TallmasksError if there is none."""
    return _first_on(merge, _is_masking, "masking_row")


def masks_over(spec: str) -> Method:
    """The method that computes a bundle's masks or compressed tensors: the given method if it has them, or else the
    TALL-mask method on its merge (for TIES: on the disjoint sum). Raises TallmasksError if there is neither."""
    if (method := _masks_over(get(spec))) is None:
        raise TallmasksError(f"{spec} has no masks and cannot be bundled; expected {', '.join(names_with_masks())}")
    return method


def names_with_masks() -> tuple[str, ...]:
    """The methods that `masks_over` accepts, in table order."""
    return tuple(name for name in names() if _masks_over(get(name)))


def _masks_over(method: Method) -> Method | None:
    if _is_masking(method) or method.codec is not None:
        return method
    if not method.is_merge or method.merge is None or method.tuned or isinstance(method.usage, Fixed):
        return None  # masks are only for the merged vector itself, with tuned alpha
    merged = get_merge(method.merge)
    name, texts = options.parse_spec(merged.name)
    on = options.written(merged.masked_as or name, options.chosen_from(texts, merged.options, name))
    return next(iter(rows_on(on, _is_masking)), None)


def _is_masking(method: Method) -> bool:
    return isinstance(method.usage, Masked)


def consensus(merge: str, k: int | None = None) -> Method:
    """The first consensus row on a merge, with threshold ``k`` (default: its own). Raises like `masking`."""
    row = _first_on(merge, lambda method: "agreement" in method.needs, "consensus_row")
    if k is None:
        return row
    name, texts = options.parse_spec(row.name)
    return get(options.written(name, {**texts, "k": k}))


def _first_on(merge: str, wanted: Callable[[Method], bool], registering: str) -> Method:
    if methods := rows_on(merge, wanted):
        return methods[0]
    name, _ = options.parse_spec(merge)
    raise TallmasksError(
        f"merge {name}: add {registering}({name!r}, order=..., title=...) to methods/rows/masks_over_merges.py"
    )


def rows_on(merge: str, wanted: Callable[[Method], bool]) -> Sequence[Method]:
    """The wanted methods on a merge, with its options, in table order."""
    name, texts = options.parse_spec(merge)
    chosen = options.chosen_from(texts, get_merge(name).options, f"merge {name}")
    methods = [method for method in map(get, names()) if method.merge == name and wanted(method)]
    return [get(options.written(method.name, chosen)) for method in methods]


def _add(what: str, registry: dict[str, Entry], entry: Entry) -> None:
    if entry.name in registry:
        raise ValueError(f"{what} {entry.name} is registered twice")
    if options.parse_spec(entry.name)[0] != entry.name:
        raise ValueError(f"{what} {entry.name}: expected a name of lower-case letters, digits and underscores")
    _ = entry.options  # raises ValueError if its functions have different defaults for one option
    registry[entry.name] = entry


def load_rows() -> None:
    """Imports every file in ``rows``, so that its merges and methods are registered."""
    for module in pkgutil.iter_modules(rows.__path__):
        importlib.import_module(f"{rows.__name__}.{module.name}")


def check_name(spec: str, expected: Collection[str], where: str = "") -> None:
    """Raises TallmasksError for an unknown method, listing ``expected``, with ``where`` before the message."""
    name, _ = options.parse_spec(spec)
    _look_up("method", name, _methods, expected, where)


def _look_up(
    what: str, name: str, registry: Mapping[str, Entry], expected: Collection[str] = (), where: str = ""
) -> Entry:
    if name not in registry:
        expected, place = expected or sorted(registry), f"{where.rstrip(':')}: " if where else ""
        raise TallmasksError(
            f"{place}no {what} {name!r}{nearest(name, expected)}; expected one of: {', '.join(expected)}"
        )
    return registry[name]
