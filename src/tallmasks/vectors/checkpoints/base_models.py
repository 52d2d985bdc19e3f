"""Whether a file has only weights of a base model, such as BertModel, and no head. The answer comes from the source of
transformers, because importing a model class takes seconds. Where it is not certain, `transformers_models` knows."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tallmasks.vectors.checkpoints.transformers_models import has_library
from tallmasks.vectors.checkpoints.transformers_names import modern


class _Parts(NamedTuple):
    """What the names of a base model's weights consist of: a prefix that classes with a head add, an attribute of the
    base model, and attributes of its layers."""

    prefixes: set[str]
    of_model: set[str]
    of_layers: set[str]


def is_base_model(config: Mapping[str, Any], names: Collection[str]) -> bool:
    """True if all ``names`` are certainly weights of the base model of the class that a config.json names. False if
    there is another tensor, such as a head, or transformers' source does not show what the class consists of."""
    match config:
        case {"model_type": str(model_type), "architectures": [str(kind), *_]} if has_library():
            parts = _parts(model_type, kind)
        case _:
            return False
    if parts is None:
        return False
    own = {modern(name) for name in names}
    for prefix in parts.prefixes:
        if all(name.startswith(f"{prefix}.") for name in own):
            own = {name.removeprefix(f"{prefix}.") for name in own}
            break
    return all(
        first in parts.of_model and all(part.isdigit() or part in parts.of_layers for part in rest)
        for first, *rest in (name.split(".") for name in own)
    )


@functools.lru_cache(maxsize=32)
def _parts(model_type: str, kind: str) -> _Parts | None:
    """None if the source of the class or of its base model is not found."""
    base, module = _base_models().get(model_type, ""), model_type.replace("-", "_")
    tree = ast.parse(_source(f"{module}/modeling_{module}.py") if base else "")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if not {base, kind} <= classes.keys():
        return None
    used = {base}
    while more := {name for one in used for name in _names(classes[one])} & classes.keys() - used:
        used |= more
    of_model, of_layers = _attributes(classes[base]), _attributes(ast.Module([classes[one] for one in used], []))
    prefixes = {ast.unparse(value).strip("'") for target, value in _assigned(tree) if target == "base_model_prefix"}
    return _Parts(prefixes, of_model, of_layers | {"weight", "bias"}) if prefixes.isdisjoint(of_model) else None


@functools.cache
def _base_models() -> dict[str, str]:
    """The class of the base model by model type."""
    table = _source("auto/modeling_auto.py").partition("\nMODEL_MAPPING_NAMES = ")[2].partition("\n)\n")[0]
    return dict(re.findall(r'\("([\w.-]+)", "(\w+)"\)', table))


def _source(path: str) -> str:
    """The source of a module of transformers; empty if there is none."""
    models = Path(str(find_spec("transformers").origin)).parent / "models"  # type: ignore[union-attr]
    return (models / path).read_text("utf-8") if (models / path).is_file() else ""


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _attributes(tree: ast.AST) -> set[str]:
    """The attributes that a class assigns, without buffers, which are not weights."""
    values = [(target[len("self.") :], value) for target, value in _assigned(tree) if target.startswith("self.")]
    return {name for name, _ in values} - {name for name, value in values if "nn.Buffer(" in ast.unparse(value)}


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The targets of all assignments, as text, with their values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((ast.unparse(target), node.value) for target in node.targets)
