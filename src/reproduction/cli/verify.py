"""Verify the checksums of artifacts, results and bundles.

    tallmasks verify
    tallmasks verify store/tiny results/tiny/8tasks
    tallmasks verify file.safetensors
    tallmasks verify ./bundle

Checks the values and metadata of artifacts against their recorded checksums, the recipe against the hash in the file's
name, and results against their provenance.json, which has its own checksum. Missing artifacts are not a problem:
Snakemake makes them when needed.

Damaged files of store/ are moved to .tallmasks/damaged/, and the output says how to restore them. Dangling links and
named pipes are removed from store/ and results/, because DVC cannot read them. Nothing else is changed. The exit
status is 1 if a check fails or a path contains nothing to check.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from reproduction.artifacts.folders import CHECKED, PROVENANCE, RESULTS, STORE, entries_under, leads_nowhere, set_aside
from reproduction.artifacts.labels import ARTIFACT, Damaged, check
from tallmasks.cli.shared_options import BUNDLES_BASE
from tallmasks.cli.verify import is_bundle, print_problems
from tallmasks.errors import TallmasksError, counted
from tallmasks.progress import work_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default: store/ and results/)"
    )
    parser.add_argument(
        "--changed",
        action="store_true",
        help="check only files that changed since their last check, as `dvc repro` does first",
    )
    parser.add_argument("--base", **BUNDLES_BASE)


def run(arguments: argparse.Namespace) -> int:
    wanted = arguments.paths or [folder for folder in (STORE, RESULTS) if folder.is_dir()]
    if arguments.changed:
        wanted = [path for path in wanted if path.exists()]
    elif not wanted:
        raise TallmasksError(f"there is neither {STORE}/ nor {RESULTS}/ here; run this in the project's folder")
    for path in wanted:
        if not path.exists() and not path.is_symlink():
            raise TallmasksError(f"{path}: no such file or folder")
    problems = sum(print_problems(path, arguments.base) for path in filter(is_bundle, wanted))
    wanted = [path for path in wanted if not is_bundle(path) or (path / PROVENANCE).is_file()]
    problems += _verify_files(wanted, arguments)
    return int(problems > 0)


def _verify_files(wanted: Sequence[Path], arguments: argparse.Namespace) -> int:
    """Print the problems of artifacts and results. Returns their number."""
    under = {start: list(entries_under(start)) if start.is_dir() else [start] for start in wanted}
    files = [path for entries in under.values() for path in entries]
    provenances = [path for path in files if path.name == PROVENANCE or path.name.endswith(f".{PROVENANCE}")]
    artifacts = [path for path in files if ARTIFACT.fullmatch(path.name)]
    checkable = {*artifacts, *provenances}
    named = [path for path in arguments.paths if path in files and path.suffix in (".safetensors", ".json")]
    artifacts += [path for path in named if path not in checkable]  # also under another name
    checkable.update(artifacts)
    lines = [
        f"{path} is neither a file nor a folder, and DVC cannot read it{_away(path)}"
        for path in files
        if path not in checkable and leads_nowhere(path)
    ]
    if not arguments.paths and not STORE.is_dir() and Path("dvc.lock").is_file():
        lines.append(f"{STORE}/ is missing, but dvc.lock lists it: `dvc pull` restores it")
    if not (lines or arguments.changed):
        groups = under.items() if arguments.paths else [(" and ".join(map(str, wanted)), files)]
        lines = [
            f"{group}: nothing to check: no artifact, no {PROVENANCE} and no bundle.json"
            for group, entries in groups
            if not checkable.intersection(entries)
        ]
    remembered = CHECKED if arguments.changed else None
    problems, sizes = 0, {path: path.lstat().st_size for path in (*artifacts, *provenances)}
    with work_progress("checking", sum(sizes.values())) as progress:
        for line in chain(lines, _damage(sizes, remembered, progress)):
            print(line, flush=True)
            problems += 1
    if wanted:
        checked = f"{len(artifacts)} artifacts and {len(provenances)} folders or sets of results"
        print(f"{checked} checked: {counted(problems, 'problem')}")
    return problems


def _away(path: Path) -> str:
    """Move a damaged file out of the store. Returns what was done, and how to restore the file."""
    path = Path(os.path.relpath(path))
    if path.parts[0] not in (STORE.name, RESULTS.name) or not (ARTIFACT.fullmatch(path.name) or leads_nowhere(path)):
        return ""
    done = f": {set_aside(path) or 'it is gone now'}"
    if not ARTIFACT.fullmatch(path.name):
        return done
    return f"{done}; `dvc pull {path}` restores it" if _in_dvc(path) else f"{done}; it is rebuilt when a job needs it"


def _in_dvc(path: Path) -> bool:
    """True if `dvc pull` can restore a file. If no cache or remote has its content, DVC would empty the folder."""
    try:
        from dvc.repo import Repo
    except ImportError:
        return False
    try:
        repo = Repo()
        md5 = repo.dvcfs.info(str(path))["md5"]
        cached = Path(repo.cache.local.path, md5[:2], md5[2:]).is_file()
        return cached or ("remote" in repo.config["core"] and repo.cloud.get_remote_odb().exists(md5))
    except Exception:  # DVC's errors have no common class, and remotes have their own
        return False


def _damage(sizes: Mapping[Path, int], remembered: Path | None, progress: Callable[[int], None]) -> Iterator[str]:
    """Check files, and yield a line per damaged file."""
    for path, size in sizes.items():
        try:
            check(path, remembered)
        except Damaged as damaged:
            yield f"{damaged}{_away(path)}"
        except (FileNotFoundError, TallmasksError) as error:
            yield str(error)
        progress(size)
