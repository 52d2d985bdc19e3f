"""Checks at the start of a job: the version of the code, and the content of all input files.

A damaged artifact is moved to .tallmasks/damaged/, so that the next run rebuilds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reproduction.artifacts.folders import CHECKED, DAMAGED, PROVENANCE, STORE, set_aside
from reproduction.artifacts.labels import ARTIFACT, Damaged, check
from reproduction.plan.node import stage_versions
from reproduction.plan.project import Index  # noqa: F401  (declares every stage)
from reproduction.plugins import outside_code
from tallmasks import methods
from tallmasks.errors import TallmasksError, naming
from tallmasks.parallel import parallel

AGAIN = "call the same command again"


def check_all(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[Path]], model: str, threads: int) -> None:
    """Compare the code and the input files of a job with its recipe.

    Raises TallmasksError, in one line that names all bad files, if the code is not the recipe's, or an input is
    damaged, missing or not the recipe's.
    """
    _check_code(recipe, model)
    expected = {
        path: digest
        for role, paths in inputs.items()
        for path, digest in zip(paths, _digests(recipe, role, len(paths)), strict=True)
    }
    problems = parallel(lambda path: _problem(path, expected[path]), expected, threads)
    if problems := list(dict.fromkeys(filter(None, problems))):
        raise TallmasksError(f"{'; '.join(problems)}. {AGAIN.capitalize()}: damaged and missing files are made again")


def _check_code(recipe: Mapping[str, Any], model: str) -> None:
    """Raises TallmasksError if the recipe names other code, for example after `git checkout` of another branch."""
    params = recipe.get("params", {})
    here: dict[str, Any] = {"version": stage_versions().get(recipe.get("kind", ""))}
    planned: dict[str, Any] = {"version": recipe.get("version", here["version"])}
    for name, key in ((params.get("family"), "family_code"), (model, "catalogue_code")):
        if key in params:
            here[key], planned[key] = outside_code(name, {}), params[key]
    if isinstance(code := params.get("code"), Mapping):  # in examples and figures it is the digest of a file
        here["methods"], planned["methods"] = methods.code(code.get("methods", ()), code.get("merges", ())), code
    if here != planned:
        raise TallmasksError(f"the code has changed since this run was planned, for example by `git checkout`: {AGAIN}")


def _digests(recipe: Mapping[str, Any], role: str, count: int) -> Sequence[str | None]:
    """The recipe's digests for a role's files: of the recipe for artifacts, of the content for source files."""
    if role in recipe.get("sources", {}):
        return [recipe["sources"][role]] * count
    digests = recipe.get("inputs", {}).get(role, ())
    return digests if len(digests) == count else [None] * count


def _problem(path: Path, digest: str | None) -> str | None:
    """Why a file is not the input in the recipe; None if it is."""
    artifact = ARTIFACT.fullmatch(path.name) if STORE.name in path.parts else None
    try:
        if artifact and digest is not None and artifact["digest"] != digest:
            return f"found the input {path}, but the recipe of this job needs the digest {digest}"
        if artifact or path.name.endswith(PROVENANCE):
            check(path, CHECKED)
        elif digest is not None and path.is_file():
            with naming(path), path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return f"{path} has changed since this run was planned"
    except FileNotFoundError:
        return f"{path} no longer exists"
    except Damaged as damaged:
        return _put_away(damaged) if artifact else str(damaged)
    return None


@contextmanager
def damage_put_away() -> Iterator[None]:
    """Move an artifact away if a step finds that its content is invalid although its checksum is right."""
    try:
        yield
    except Damaged as damaged:
        if STORE.name not in damaged.path.parts:
            raise
        raise TallmasksError(f"{_put_away(damaged)}. {AGAIN.capitalize()}, and it is made again") from None


def _put_away(damaged: Damaged) -> str:
    """Move a damaged artifact away; returns the message.  Several jobs may find the same one."""
    return f"{damaged}: {set_aside(damaged.path) or f'moved to {DAMAGED / damaged.path}'}"
