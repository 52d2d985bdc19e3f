"""The project on disk: params.yaml, what lies in the store, and whether a results folder is what the plan asks for."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tallmasks.checkpoints import open_tensors
from tallmasks.errors import TallmasksError, nearest
from tallmasks.plan import DIGEST_LENGTH, Node, Plan, digest_of

if TYPE_CHECKING:
    import jsonschema

SCRATCH = Path(".tallmasks")
DAMAGED = SCRATCH / "damaged"
STORE = Path("store")
RESULTS = Path("results")
PROVENANCE = "provenance.json"
ARTIFACT = re.compile(rf"(?P<slug>.+)-(?P<digest>[0-9a-f]{{{DIGEST_LENGTH}}})\.(?:safetensors|json)")
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
"""The hidden name under which a file is written before it gets its own."""


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in the folder `root`.

    Raises:
        TallmasksError: there is no params.yaml, or it is not what its schema allows.
    """
    import jsonschema

    path = root / "params.yaml"
    try:
        params = yaml.safe_load(path.read_text())
        schema = yaml.safe_load((root / "workflow" / "schemas" / "params.schema.yaml").read_text())
    except FileNotFoundError as error:
        raise TallmasksError(f"{error.filename}: no such file; run this in the project's folder") from None
    except yaml.YAMLError as error:
        raise TallmasksError(f"{path}: {error}") from None
    try:
        jsonschema.validate(params, schema)
    except jsonschema.ValidationError as error:
        raise TallmasksError(refusal(error)) from None
    return Plan(params, root)


def refusal(error: jsonschema.ValidationError) -> str:
    """What the schema has against params.yaml, in one line: where, what was found and what is allowed."""
    from jsonschema.exceptions import best_match

    error = best_match([error]) or error
    where = ".".join(map(str, error.absolute_path))
    message = f"params.yaml: {where}{': ' if where else ''}{error.message}"
    known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and known and isinstance(error.instance, dict):
        unknown = next(key for key in error.instance if key not in known)
        return f"{message}; known here: {', '.join(known)}{nearest(str(unknown), known)}"
    described = error.schema.get("description") if isinstance(error.schema, dict) else None
    return f"{message}; expected {described}" if described else message


def files_under(folder: Path) -> Iterator[Path]:
    """The plain files under a folder, sorted; neither the folder itself nor anything in it is followed as a link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from files_under(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def recipe_of(path: Path) -> dict[str, Any] | None:
    """The recipe that an artifact carries, or None where the file is not whole or carries none."""
    try:
        if path.suffix == ".safetensors":
            found = json.loads(open_tensors(path).metadata["recipe"])
        else:
            found = json.loads(path.read_text())["recipe"]
    except (TallmasksError, OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def is_artifact(path: Path) -> bool:
    """Whether the workflow made this file: the recipe that it carries has the digest that its name carries."""
    named = ARTIFACT.fullmatch(path.name)
    recipe = recipe_of(path) if named else None
    return named is not None and recipe is not None and digest_of(recipe) == named["digest"]


def missing(nodes: Iterable[Node], root: Path = Path()) -> list[Node]:
    """The artifacts that would have to be made to have `nodes`, each once; what is there needs no inputs."""
    found: dict[str, Node] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node.path not in found and not (root / node.path).exists():
            found[node.path] = node
            todo.extend(needed for nodes in node.inputs.values() for needed in nodes)
    return [found[path] for path in sorted(found)]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty where there is none to be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def staleness(folder: Path, recipe: Mapping[str, Any], provenance_name: str = PROVENANCE) -> str | None:
    """Why a results folder, or those of its files that a provenance vouches for, are not what `recipe` makes, by
    content; None where they are."""
    path = folder / provenance_name
    try:
        provenance = json.loads(path.read_text())
        vouched, digest = provenance["sha256"], provenance["recipe"]["digest"]
    except FileNotFoundError:
        return f"{path} is not there"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path} cannot be read"
    for name, expected in vouched.items():
        try:
            found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError:
            return f"{folder / name} is not there"
        if found != expected:
            return f"{folder / name} is not what was written there: its sha256 is not the one in {path.name}"
    return None if digest == recipe["digest"] else "what it is made from has changed"


@contextmanager
def only_writer(root: Path = Path()) -> Iterator[None]:
    """Hold the lock that a running snakemake holds.

    Raises:
        TallmasksError: a snakemake is at work in this folder.
    """
    (root / SCRATCH).mkdir(exist_ok=True)
    with (root / SCRATCH / "writer.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TallmasksError("a snakemake is at work in this folder; wait for it to end") from None
        yield
