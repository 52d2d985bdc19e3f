"""Verify every byte of bundles against their checksums, and decode them.

    tallmasks verify ./bundle

Reads the bundle's files, and the base if it is on this machine. The exit status is 1 if a bundle has a problem.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tallmasks.cli.shared_options import BUNDLES_BASE
from tallmasks.errors import TallmasksError, counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="BUNDLE", help="folders of bundles")
    parser.add_argument("--base", **BUNDLES_BASE)


def run(arguments: argparse.Namespace) -> int:
    for path in arguments.paths:
        if not path.exists() and not path.is_symlink():
            raise TallmasksError(f"{path}: no such file or folder")
        if not is_bundle(path):
            raise TallmasksError(f"{path}: found no bundle.json; expected the folder of a bundle")
    return int(sum(print_problems(path, arguments.base) for path in arguments.paths) > 0)


def is_bundle(path: Path) -> bool:
    return (path / "bundle.json").is_file() or path.name == "bundle.json"


def print_problems(bundle: Path, base: str | None) -> int:
    """Check a bundle, print its problems, and return their number."""
    from tallmasks.bundles.bundle_parts import manifest_of, open_location  # slow to import
    from tallmasks.bundles.original_files import exactness
    from tallmasks.bundles.verification import verify_bundle

    problems = verify_bundle(bundle, base)
    print(*problems, f"{bundle}: all files of the bundle checked: {counted(len(problems), 'problem')}", sep="\n")
    if not problems and (manifest := manifest_of(open_location(bundle))).is_exact:
        print(exactness(manifest))
    return len(problems)
