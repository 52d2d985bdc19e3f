"""Remove stored files that params.yaml no longer needs.

    tallmasks gc
    tallmasks gc --yes

Lists artifacts of other parameters in store/, temporary files of killed jobs in store/ and results/, and damaged files
and abandoned trainings in .tallmasks/. Removes them with --yes or if you confirm. Symbolic links below these folders
are not followed. Only files written by the workflow are removed: the hash in an artifact's name must match its recipe.
If a file that params.yaml names is missing, such as the weights of a base, all artifacts of its model are kept.
Versions in DVC's cache stay; `dvc checkout` of a commit that has them in dvc.lock restores them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reproduction.artifacts.folders import DAMAGED, RESULTS, STORE, UNFINISHED, be_only_writer, files_under, is_artifact
from reproduction.plan.project import Index, open_plan
from tallmasks.errors import TallmasksError, counted
from tallmasks.io.atomic_files import TEMPORARY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="remove without asking")


def run(arguments: argparse.Namespace) -> int:
    index = Index(open_plan())
    declared = index.declared()
    be_only_writer()
    unneeded: list[Path] = []
    foreign: list[Path] = []
    kept: dict[Path, TallmasksError] = {}
    for path in files_under(STORE):
        unknown = index.unknown.keys() & {*path.parents}
        if unknown and not _is_temporary(path):
            kept |= {folder: index.unknown[folder] for folder in unknown}
        elif str(path) not in declared:
            (unneeded if _is_temporary(path) or is_artifact(path) else foreign).append(path)
    unneeded += [path for path in files_under(RESULTS) if _is_temporary(path)]
    unneeded += files_under(DAMAGED)
    resumable = {Path(path).name for path in declared if not Path(path).exists()}
    unfinished = [path for path in files_under(UNFINISHED) if path.name not in resumable]
    if unfinished and index.unknown:  # their names do not say of which model they are
        kept[UNFINISHED] = next(iter(index.unknown.values()))
    else:
        unneeded += unfinished
    for folder, error in kept.items():
        print(f"kept, because it is not known what params.yaml needs in {folder}: {error}", file=sys.stderr)
    for path in foreign:
        print(f"kept, because the workflow did not write it or it is damaged: {path}", file=sys.stderr)
    if not unneeded:
        print("nothing to remove" if kept else "nothing to remove: params.yaml needs every artifact")
        return 0
    sizes = {path: path.lstat().st_size for path in unneeded}
    for path, size in sizes.items():
        print(f"{size / 1e6:10.1f} MB  {path}")
    print(f"{sum(sizes.values()) / 1e6:10.1f} MB  in {counted(len(sizes), 'file')} that params.yaml no longer needs")
    agreed = arguments.yes or (sys.stdin.isatty() and input("Remove them? [y/N] ").strip().lower() in {"y", "yes"})
    if not agreed:
        print("nothing removed; `tallmasks gc --yes` removes them")
        return 0
    for path in unneeded:
        path.unlink()
        for folder in path.parents:  # a killed job leaves a temporary folder
            if not _is_temporary(folder) or any(folder.iterdir()):
                break
            folder.rmdir()
    print(f"removed {counted(len(unneeded), 'file')}")
    return 0


def _is_temporary(path: Path) -> bool:
    return any(TEMPORARY.fullmatch(part) for part in path.parts)
