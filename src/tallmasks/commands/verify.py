"""Check the content of artifacts and results files, all of it.

    tallmasks verify                              store/ and results/ of this project
    tallmasks verify store/tiny results/tiny/8tasks
    tallmasks verify file.safetensors
    tallmasks verify ./bundle                     of `tallmasks compress`
    tallmasks verify --restore store/tiny         put right what can be, as `dvc repro` does first

An artifact's values and metadata must have the digests that were recorded.  Its recipe must have the digest in its
name.  Its inputs, if they are there, must have the recorded content.  Results files must match their provenance.  Files
that dvc.lock has and params.yaml still needs must be there.  Intermediate artifacts may be missing.  The exit status is
1 if anything is wrong, or if a place has nothing to check.

Without --restore nothing is changed.  With it, damaged files are moved to .tallmasks/damaged/.  Damaged and lost files
that dvc.lock has come back from DVC's cache or remote.  Snakemake makes the others again; they do not change the exit
status.  Dangling links and named pipes are removed, since DVC cannot read them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from tallmasks.commands.progress import WorkProgress
from tallmasks.store.artifacts import ARTIFACT, Damaged, Label, check, same
from tallmasks.store.errors import TallmasksError
from tallmasks.store.folders import PROVENANCE, RESULTS, STORE, entries_at, leads_nowhere, provenance_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders; all without it")
    parser.add_argument(
        "--restore", action="store_true", help="move damaged artifacts away, and bring back what dvc.lock has of them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what is not as it should be, and how much was looked at; or put it right."""
    if arguments.restore:
        from tallmasks.commands import dvc_lock

        dvc_lock.restore([_inside(path) for path in arguments.paths or [STORE]])
        return 0
    wanted = arguments.paths or [folder for folder in (STORE, RESULTS) if folder.is_dir()]
    if not wanted:
        raise TallmasksError(f"there is neither {STORE}/ nor {RESULTS}/ here; run this in the project's folder")
    if absent := [path for path in wanted if not path.exists() and not path.is_symlink()]:
        raise TallmasksError(f"{absent[0]}: no such file or folder")
    bundles = [folder for folder in wanted if (folder / "bundle.json").is_file()]
    wanted = [path for path in wanted if path not in bundles]
    damaged_bundles = sum(_verify_bundle(folder) for folder in bundles)
    under = {start: entries_at(start) for start in wanted}
    files = [path for entries in under.values() for path in entries]
    artifacts = [path for path in files if ARTIFACT.fullmatch(path.name)] + [
        path for path in arguments.paths if path in files and not ARTIFACT.fullmatch(path.name) and not _vouches(path)
    ]
    provenances = [path for path in files if _vouches(path)]
    checkable = {*artifacts, *provenances}
    lines = _lacking(arguments.paths or [STORE, RESULTS])
    lines += [
        f"{path} is neither a file nor a folder, and DVC cannot read it; remove it"
        for path in files
        if path not in checkable and leads_nowhere(path)
    ]
    if not lines:
        places = under.items() if arguments.paths else [(" and ".join(map(str, wanted)), files)]
        lines = [
            f"{place}: nothing to check there, neither an artifact nor a {PROVENANCE} nor a bundle.json"
            for place, entries in places
            if not checkable.intersection(entries)
        ]
    problems, sizes = 0, {path: path.lstat().st_size for path in (*artifacts, *provenances)}
    with WorkProgress("checking", sum(sizes.values())) as progress:
        for line in chain(lines, _damage(artifacts, provenances, lambda path: progress.add(sizes[path]))):
            print(line, flush=True)
            problems += 1
    if wanted:
        checked = f"{len(artifacts)} artifacts and {len(provenances)} folders or sets of results"
        print(f"{checked} checked: {problems} problems")
    return int(problems + damaged_bundles > 0)


def _lacking(places: list[Path]) -> list[str]:
    """What dvc.lock has there and the store has not, where this folder is under DVC."""
    here = [path for path in (Path(os.path.relpath(place)) for place in places) if ".." not in path.parts]
    if not here or not Path(".dvc").is_dir():
        return []
    from tallmasks.commands import dvc_lock

    return dvc_lock.lacking(here)


def _verify_bundle(folder: Path) -> int:
    """Print what is wrong with a bundle; how much that is."""
    from tallmasks.bundles.verification import verify_bundle

    problems = verify_bundle(folder)
    for line in problems:
        print(line)
    print(f"{folder}: a bundle, every file of it checked: {len(problems)} problems")
    return len(problems)


def _damage(artifacts: list[Path], provenances: list[Path], done: Callable[[Path], None]) -> Iterator[str]:
    """What is wrong with the content of artifacts and of results, a line each; ``done`` gets every file."""
    labels: dict[Path, Label] = {}
    for path in artifacts:
        try:
            labels[path] = check(path)
        except (Damaged, FileNotFoundError) as damaged:
            yield str(damaged)
        done(path)
    for path, why in _made_from_other(labels):
        yield f"{path} was made from {why}"
    for path in provenances:
        try:
            provenance_of(path.parent, path.name)
        except Damaged as damaged:
            yield str(damaged)
        done(path)


def _vouches(path: Path) -> bool:
    return path.name == PROVENANCE or path.name.endswith(f".{PROVENANCE}")


def _made_from_other(labels: dict[Path, Label]) -> Iterator[tuple[Path, str]]:
    """Artifacts that record another content of an input than the one that it has, if it is there, and why."""
    by_digest = {named["digest"]: path for path in labels if (named := ARTIFACT.fullmatch(path.name))}
    for path, label in labels.items():
        for role, digests in label.recipe.get("inputs", {}).items():
            for digest, recorded in zip(digests, label.made_from.get(role, ()), strict=False):
                now = by_digest.get(digest)
                if now is not None and not same(recorded, labels[now].identity):
                    yield path, f"another content than {now} has now"


def _inside(path: Path) -> Path:
    """A path of this project, from its folder on."""
    if not path.resolve().is_relative_to(Path().resolve()):
        raise TallmasksError(f"{path} is not in this folder's project; run this in the folder of the project")
    return Path(os.path.relpath(path))
