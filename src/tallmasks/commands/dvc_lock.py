"""Make the store agree with dvc.lock: `tallmasks verify --restore`, before Snakemake runs in a DVC stage.

A store file never changes, so one that differs from dvc.lock is damaged.  DVC keeps the folders that a stage makes
(`persist`), and would commit the damage.  Such a file is moved to .tallmasks/damaged/.  It comes back from DVC's cache,
whose copy must have the right md5, or from the remote; a lost file too, if a declared recipe still names it. What
cannot be had is left to Snakemake, which makes it again: the same bytes.

Beyond that every artifact must hold every value that was written (see `tallmasks.store.artifacts`), also those of
dvc.lock: what it has of an older damage is not restored.  Others are moved away, and made again by Snakemake.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dvc.api import DVCFileSystem
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc_data.index import DataIndexDirError

from tallmasks.plan.node import Node
from tallmasks.plan.project import open_plan
from tallmasks.store.artifacts import ARTIFACT, Damaged, check
from tallmasks.store.atomic_files import atomic_write_text, whole
from tallmasks.store.errors import TallmasksError
from tallmasks.store.folders import (
    CHECKED,
    RESULTS,
    SCRATCH,
    STORE,
    entries_at,
    leads_nowhere,
    set_aside,
)

KNOWN = SCRATCH / "md5.json"


class Checksums:
    """md5 of files, remembered between runs while inode, size and change time stay the same.

    The change time moves with every write and cannot be set, unlike the modification time.
    """

    def __init__(self) -> None:
        try:
            self._known: dict[str, list] = json.loads(KNOWN.read_text())
        except (OSError, TallmasksError, ValueError):
            self._known = {}

    def __call__(self, path: Path) -> str | None:
        """The md5 of a file; nothing of what is no file that can be read; None where there is none."""
        try:
            return self._of_file(path)
        except FileNotFoundError:
            return None
        except OSError:
            return ""

    def _of_file(self, path: Path) -> str:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return ""
        identity = [status.st_ino, status.st_size, status.st_ctime_ns]
        recorded = self._known.get(str(path))
        if recorded is None or recorded[:3] != identity:
            with path.open("rb") as file:
                recorded = [*identity, hashlib.file_digest(file, "md5").hexdigest()]
            self._known[str(path)] = recorded
        return recorded[3]

    def save(self) -> None:
        existing = {path: recorded for path, recorded in self._known.items() if Path(path).exists()}
        atomic_write_text(KNOWN, json.dumps(existing), read_only=False)


def restore(folders: Sequence[Path]) -> None:
    """Restore or set aside what is damaged or lost under `folders` of the project, and say each on stderr."""
    try:
        dvc = DVCFileSystem(".")
    except NotDvcRepoError:
        raise TallmasksError("nothing to restore from: this folder is not under DVC (`dvc init`)") from None
    checksum = Checksums()
    for md5 in _outs(dvc, folders).values():  # damaged lists of files, so that DVC fetches them or writes them anew
        _intact(dvc, md5)
    expected, unknown = _expected(dvc, folders)
    if unknown:
        _say(
            f"what dvc.lock versions in {', '.join(unknown)} is neither in DVC's cache nor to be had from its remote "
            f"({next(iter(unknown.values()))}); what is not there is made again"
        )
    declared = _declared(folders)
    for folder in folders:
        if not folder.exists() and not any(
            _is_under(Path(name), [folder]) for name in (*expected, *unknown, *declared)
        ):
            raise TallmasksError(
                f"{folder}: no such file or folder, and neither dvc.lock nor params.yaml has one there"
            )
    for path in (path for folder in (*folders, RESULTS) for path in entries_at(folder)):
        if leads_nowhere(path):
            _set_aside(str(path), "is nothing that DVC can read")
    lost: dict[str, str] = {}
    for name, md5 in expected.items():
        actual = checksum(Path(name))
        if actual is not None and actual != md5:
            _set_aside(name, "is not what dvc.lock says")
        if actual != md5 and (actual is not None or name in declared):
            lost[name] = md5
    _restore(dvc, lost)
    for folder in folders:
        for path in entries_at(folder):
            if ARTIFACT.fullmatch(path.name) and not _whole(path):
                _set_aside(str(path), "is not what was written there")
    checksum.save()


def lacking(places: Sequence[Path]) -> list[str]:
    """What is missing under some files and folders, though dvc.lock has it and a recipe of params.yaml names it; a line
    each."""
    try:
        dvc = DVCFileSystem(".")
    except NotDvcRepoError:
        return []
    expected, unknown = _expected(dvc, places)
    lines = [
        f"{out}: dvc.lock has it, and neither DVC's cache nor its remote says which files ({why})"
        for out, why in unknown.items()
    ]
    absent = [name for name in expected if not Path(name).exists() and not Path(name).is_symlink()]
    declared: Iterable[str] = ()
    if absent:
        try:
            declared = _declared([Path(name) for name in absent])
        except TallmasksError as error:  # then nobody can say what is still asked for
            declared, lines = absent, [*lines, str(error)]
    return lines + [
        f"{name} is not there, and dvc.lock has it: `tallmasks verify --restore` brings it back"
        for name in absent
        if name in declared
    ]


def _declared(places: Sequence[Path]) -> Mapping[str, Node]:
    """What the recipes declared in params.yaml name, of the models whose folders these places are, hold or lie in."""
    plan = open_plan()
    return plan.index.declared([model for model in plan.models if _meet(STORE / model, places)])


def _outs(dvc: DVCFileSystem, folders: Iterable[Path]) -> dict[str, str]:
    """What dvc.lock has of every out that is, holds or lies in one of `folders`, by path: the md5 of a file, or of a
    folder's list of files."""
    root = Path(dvc.repo.root_dir)
    return {
        str(Path(out.fs_path).relative_to(root)): out.hash_info.value
        for out in dvc.repo.index.outs
        if out.hash_info and _meet(Path(out.fs_path), [root / folder for folder in folders])
    }


def _is_under(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _meet(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) or folder.is_relative_to(path) for folder in folders)


def _expected(dvc: DVCFileSystem, folders: Sequence[Path]) -> tuple[dict[str, str], dict[str, str]]:
    """md5 by path of every file that dvc.lock has under `folders`; and the outs of which neither the cache nor the
    remote can tell, with the reason."""
    expected: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for out in _outs(dvc, folders):
        try:
            entries = dvc.find(out, detail=True, dvc_only=True)
        except (DataIndexDirError, DvcException, ImportError) as error:  # no list, no such remote, no plugin for it
            unknown[out] = str(error.__cause__ or error)
            continue
        expected |= {name: entry["md5"] for name, entry in entries.items() if "md5" in entry}
    files = {name: md5 for name, md5 in expected.items() if not md5.endswith(".dir") and _is_under(Path(name), folders)}
    return files, unknown


def _whole(path: Path) -> bool:
    """Whether an artifact is what it says of itself, all of it."""
    try:
        check(path, CHECKED)
    except (Damaged, OSError):
        return False
    return True


def _set_aside(name: str, why: str) -> None:
    if done := set_aside(Path(name)):
        _say(f"{name} {why}: {done}")


def _restore(dvc: DVCFileSystem, lost: Mapping[str, str]) -> None:
    """Bring files back from the cache, after fetching what the cache has not; each has the md5 that it should have."""
    absent = [name for name, md5 in lost.items() if not _intact(dvc, md5)]
    if absent:
        command = [sys.executable, "-m", "dvc", "fetch", *absent]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    for name, md5 in lost.items():
        if _intact(dvc, md5):
            source = _object(dvc, md5)
            with whole(name, source.stat().st_size, read_only=True) as copy:
                shutil.copyfile(source, copy)
            _say(f"{name}: restored")
        else:
            _say(f"{name}: neither cache nor remote has it; Snakemake makes it again where it is needed")


def _object(dvc: DVCFileSystem, md5: str) -> Path:
    return Path(dvc.repo.cache.local.path, md5[:2], md5[2:])


def _intact(dvc: DVCFileSystem, md5: str) -> bool:
    """Whether the cache has an object with the content that its name says.  One with another content is removed."""
    path = _object(dvc, md5)
    if not path.is_file():
        if leads_nowhere(path) and (path.is_symlink() or path.exists()):
            path.unlink()  # a named pipe, say, for which DVC would wait for ever
        return False
    with path.open("rb") as file:
        if hashlib.file_digest(file, "md5").hexdigest() == md5.removesuffix(".dir"):
            return True
    path.unlink()
    _say(f"{path}: damaged in DVC's cache, removed")
    return False


def _say(line: str) -> None:
    print(f"verify: {line}", file=sys.stderr, flush=True)
