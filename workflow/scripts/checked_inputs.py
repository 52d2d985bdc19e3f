"""What a job checks before it computes anything: the code that it runs, and the content of every file that it reads.

A damaged artifact is moved to .tallmasks/damaged/, so that the next run makes it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallmasks.plan import figure_stages  # noqa: F401  (declares all stages, with those of `chain`)
from tallmasks.plan.node import STAGES
from tallmasks.store.artifacts import ARTIFACT, Damaged, check, identity
from tallmasks.store.errors import TallmasksError, naming
from tallmasks.store.fingerprints import fingerprint_of_module
from tallmasks.store.folders import CHECKED, DAMAGED, PROVENANCE, STORE, provenance_of, set_aside
from tallmasks.store.parallel import parallel
from tallmasks.store.seals import CONTENT

AGAIN = "call the same command again"


def checked(
    recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[Path]], model: str, threads: int
) -> dict[str, list[str]]:
    """The identities of the artifacts and results that a job reads, by role; of source files there are none.

    Raises TallmasksError where the code at hand is another than the recipe's, or an input is damaged, lost or another
    than the recipe's; in one line that names the file and what to do.
    """
    _check_code(recipe, model)
    files = [
        (role, path, expected)
        for role, paths in inputs.items()
        for path, expected in zip(paths, _expected(recipe, role, len(paths)), strict=True)
    ]
    identities = parallel(lambda file: _identity_or_error(*file[1:]), files, threads)
    if errors := list(dict.fromkeys(str(one) for one in identities if isinstance(one, TallmasksError))):
        raise TallmasksError(f"{'; '.join(errors)}. {AGAIN.capitalize()}: what is damaged or lost is made again")
    made_from: dict[str, list[str]] = {}
    for (role, _, _), recorded in zip(files, identities, strict=True):
        if isinstance(recorded, str):
            made_from.setdefault(role, []).append(recorded)
    return made_from


def _check_code(recipe: Mapping[str, Any], model: str) -> None:
    """Refuse to make, under a name that says one thing, what other code makes: of another branch, say."""
    changed = []
    if "version" in recipe and (number := _number_of(recipe["kind"])) != recipe["version"]:
        changed.append(f"stage {recipe['kind']} has number {number} here, not {recipe['version']}")
    params = recipe.get("params", {})
    for name, key in ((params.get("family"), "family_code"), (model, "catalogue_code")):
        if key in params and fingerprint_of_module(name) != params[key]:
            changed.append(f"the module {name} is another one here")
    code = params.get("code", {})
    for what, digests in code.items() if isinstance(code, dict) else ():  # of a drawn task it is one digest
        from tallmasks import methods

        look_up = methods.get if what == "methods" else methods.get_merge
        changed += [
            f"{name} of {what} is another one here" for name, digest in digests.items() if look_up(name).code != digest
        ]
    if changed:
        raise TallmasksError(
            f"the code has changed since this run was planned ({'; '.join(changed)}), as after `git checkout` of "
            f"another branch: {AGAIN}, and it is planned with the code that is there"
        )


def _number_of(kind: str) -> int | None:
    """The number of a stage in this code; what is drawn and how is only imported where that is the stage."""
    if kind in STAGES:
        return STAGES[kind].version
    from tallmasks.plan.recipes import version_of

    return version_of(kind)


def _expected(recipe: Mapping[str, Any], role: str, count: int) -> list[str | None]:
    """The digests that the recipe has of a role's files: of artifacts' recipes, or of source files' content."""
    if role in recipe.get("sources", {}):
        return [recipe["sources"][role]] * count
    digests = recipe.get("inputs", {}).get(role)
    return list(digests) if digests is not None and len(digests) == count else [None] * count


def _identity_or_error(path: Path, expected: str | None) -> str | TallmasksError | None:
    """So that all damaged inputs of a job are found at once, and not one with every run."""
    try:
        return _identity(path, expected)
    except TallmasksError as error:
        return error


def _identity(path: Path, expected: str | None) -> str | None:
    """The identity of an input; None of a source file, whose content is in the recipe itself."""
    if path.parts[0] == STORE.name:
        return _artifact(path, expected)
    if path.name.endswith(PROVENANCE):
        provenance = provenance_of(path.parent, path.name)
        return identity(provenance[CONTENT], provenance["machine"])
    if expected is not None and path.is_file():
        with naming(path), path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise TallmasksError(f"{path} has changed since this run was planned")
    return None


def _artifact(path: Path, expected: str | None) -> str:
    named = ARTIFACT.fullmatch(path.name)
    if expected is not None and (named is None or named["digest"] != expected):
        raise TallmasksError(f"{path} was given to this job where its recipe asks for one with the digest {expected}")
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
        if damaged.path.parts[0] != STORE.name:
            raise
        raise TallmasksError(f"{_put_away(damaged)}. {AGAIN.capitalize()}, and it is made again") from None


def _put_away(damaged: Damaged) -> str:
    """Move a damaged artifact out of the way of the next run; what every job that finds it says of it."""
    return f"{damaged}: {set_aside(damaged.path) or f'moved to {DAMAGED / damaged.path}'}"
