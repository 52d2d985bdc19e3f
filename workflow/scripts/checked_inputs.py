"""What a job checks before it computes anything: the code that it runs, and the content of every file that it reads.

A damaged artifact is moved to .tallmasks/damaged/, so that the next run makes it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.artifacts.fingerprints import fingerprint_of_module
from tallmasks.artifacts.folders import CHECKED, DAMAGED, PROVENANCE, STORE, provenance_of, set_aside
from tallmasks.artifacts.labels import ARTIFACT, Damaged, check
from tallmasks.errors import TallmasksError, naming
from tallmasks.io.seals import CONTENT
from tallmasks.parallel import parallel
from tallmasks.plan.recipes import version_of

AGAIN = "call the same command again"


def checked(
    recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[Path]], model: str, threads: int
) -> dict[str, list[str]]:
    """What an artifact records of the artifacts and results that it is made from, by role.

    Raises TallmasksError where the code at hand is another than the recipe's, or an input is damaged, lost or another
    than the recipe's; in one line that names all of these files and what to do.
    """
    _check_code(recipe, model)
    expected = {
        path: digest
        for role, paths in inputs.items()
        for path, digest in zip(paths, _digests(recipe, role, len(paths)), strict=True)
    }
    found = dict(zip(expected, parallel(lambda path: _found(path, expected[path]), expected, threads), strict=True))
    if errors := dict.fromkeys(str(one) for one in found.values() if isinstance(one, TallmasksError)):
        raise TallmasksError(f"{'; '.join(errors)}. {AGAIN.capitalize()}: what is damaged or lost is made again")
    return {role: [str(found[path]) for path in paths] for role, paths in inputs.items() if paths and found[paths[0]]}


def _check_code(recipe: Mapping[str, Any], model: str) -> None:
    """Refuse to make, under a name that says one thing, what other code makes: of another branch, say."""
    params, changed = recipe.get("params", {}), []
    if "version" in recipe and (number := version_of(recipe["kind"])) != recipe["version"]:
        changed.append(f"stage {recipe['kind']} has number {number} here, not {recipe['version']}")
    for name, key in ((params.get("family"), "family_code"), (model, "catalogue_code")):
        if key in params and fingerprint_of_module(name) != params[key]:
            changed.append(f"the module {name} is another one here")
    if isinstance(code := params.get("code"), Mapping):  # of a drawn task it is one digest
        here = methods.code(code.get("methods", ()), code.get("merges", ()))
        changed += [
            f"{name} of {what} is another one here"
            for what, digests in here.items()
            for name, digest in digests.items()
            if digest != code[what][name]
        ]
    if changed:
        raise TallmasksError(
            f"the code has changed since this run was planned ({'; '.join(changed)}), as after `git checkout` of "
            f"another branch: {AGAIN}, and it is planned with the code that is there"
        )


def _digests(recipe: Mapping[str, Any], role: str, count: int) -> Sequence[str | None]:
    """The digests that the recipe has of a role's files: of artifacts' recipes, or of source files' content."""
    if role in recipe.get("sources", {}):
        return [recipe["sources"][role]] * count
    digests = recipe.get("inputs", {}).get(role, ())
    return digests if len(digests) == count else [None] * count


def _found(path: Path, digest: str | None) -> str | TallmasksError | None:
    """What an artifact records of an input, which is None of a source file: its content is in the recipe itself.

    Errors are given back, so that all damaged inputs of a job are found at once, and not one with every run.
    """
    try:
        if ARTIFACT.fullmatch(path.name) and STORE.name in path.parts:
            return _artifact(path, digest)
        if path.name.endswith(PROVENANCE):
            return str(provenance_of(path.parent, path.name)[CONTENT])
        if digest is not None and path.is_file():
            with naming(path), path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise TallmasksError(f"{path} has changed since this run was planned")
    except TallmasksError as error:
        return error
    return None


def _artifact(path: Path, digest: str | None) -> str:
    named = ARTIFACT.fullmatch(path.name)
    if digest is not None and (named is None or named["digest"] != digest):
        raise TallmasksError(f"{path} was given to this job where its recipe asks for one with the digest {digest}")
    try:
        return check(path, CHECKED).identity
    except FileNotFoundError:
        raise TallmasksError(f"{path} is not there any more") from None
    except Damaged as damaged:
        raise TallmasksError(_put_away(damaged)) from None


@contextmanager
def damage_put_away() -> Iterator[None]:
    """Likewise where a step itself finds out that an artifact, whole and sealed, is not what its recipe makes."""
    try:
        yield
    except Damaged as damaged:
        if STORE.name not in damaged.path.parts:
            raise
        raise TallmasksError(f"{_put_away(damaged)}. {AGAIN.capitalize()}, and it is made again") from None


def _put_away(damaged: Damaged) -> str:
    """Move a damaged artifact out of the way of the next run; what every job that finds it says of it."""
    return f"{damaged}: {set_aside(damaged.path) or f'moved to {DAMAGED / damaged.path}'}"
