"""The files of a dataset that can be downloaded: from the hub at one commit, from its cache, or in a folder."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError


@dataclass(frozen=True)
class HubFiles:
    """Where a dataset lies on the Hugging Face hub.

    Attributes:
        hub: The dataset repository.
        files: The files that "train" and "test" are made from, as glob patterns, in which * crosses folders.
        revision: The commit; None is what the branch main holds when it is first fetched.
    """

    hub: str
    files: Mapping[str, str]
    revision: str | None


@dataclass(frozen=True)
class Files:
    """The files of one of a dataset's own splits, and where they are from.

    Attributes:
        paths: Files, or the one folder that has a folder per class.
        origin: The dataset repository, or the local folder.
        revision: The commit that the hub resolved to; None for a local folder.
    """

    paths: tuple[Path, ...]
    origin: str
    revision: str | None


def from_hub(task: str, source: HubFiles, part: str, instead: str) -> Files:
    """A part's files in this machine's hub cache or on the hub, which then is downloaded.

    Args:
        task: The task's name, for messages.
        source: Where its dataset lies.
        part: A key of ``source.files``.
        instead: What else a user can do, said where the files cannot be had.

    Raises:
        TallmasksError: The files are not there, not all there, or cannot be downloaded.
    """
    repository, revision, pattern = source.hub, source.revision or "main", source.files[part]
    paths = _cached(repository, revision, pattern)
    if not paths:
        names = _listing(task, source, instead)
        matching = sorted(fnmatch.filter(names, pattern), key=_natural)
        where = hub.address(repository, pattern, revision, "dataset")
        if not matching:
            raise TallmasksError(
                f"{where}: no such files; the repository has {', '.join(sorted(names)[:10])}. {instead}"
            )
        refuse_part(task, part, where, matching)
        paths = tuple(hub.download(repository, name, revision, "dataset") for name in matching)
    return Files(paths, f"huggingface.co/datasets/{repository}", hub.commit_of(paths[0]))


def missing_from_hub(task: str, source: HubFiles, instead: str) -> str | None:
    """What to say if the hub would have to be asked for a task's files and does not answer; None if all is well."""
    revision = source.revision or "main"
    if all(_cached(source.hub, revision, pattern) for pattern in source.files.values()) or hub.reachable():
        return None
    patterns = " ".join(f"--include '{pattern}'" for pattern in source.files.values())
    return (
        f"{task}: huggingface.co/datasets/{source.hub} at {revision} is not in this machine's hub cache, and the hub "
        f"does not answer. Run `hf download {source.hub} --repo-type dataset --revision {hub.to_type(revision)} "
        f"{patterns}` where there is a network and copy the cache here (HF_HOME says where it lies). {instead}"
    )


def in_folder(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """The files in a local folder that match the first pattern which any match, in their natural order."""
    for pattern in patterns:
        if paths := sorted((path for path in folder.glob(pattern) if not hidden(path, folder)), key=_natural):
            return tuple(paths)
    return ()


def listed(folder: Path) -> str:
    """What lies in a folder, for a message."""
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"


def refuse_part(task: str, part: str, where: str, names: Sequence[str]) -> None:
    """Refuse some shards of a split, which would pass for a smaller dataset."""
    if lacking := _lacking(names):
        raise TallmasksError(
            f"{where}: {task}: {lacking}. Expected every shard of {part} once: get the data again, or remove "
            "what is of another set"
        )


def hidden(path: Path, folder: Path) -> bool:
    """Whether a file's name, or that of a folder on the way to it, begins with a dot: such are no part of the digest
    that stands for a local folder (`tallmasks.store.source_digests`)."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _cached(repository: str, revision: str, pattern: str) -> tuple[Path, ...]:
    """The files in the hub cache if all shards are there, else nothing; touches no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    for commit in hub.cached_commits(repository, revision, "dataset"):
        try:
            folder = Path(snapshot_download(repository, repo_type="dataset", revision=commit, local_files_only=True))
        except LocalEntryNotFoundError:
            continue
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        matching = sorted(fnmatch.filter(names, pattern), key=_natural)
        if not all(_SHARD.search(name) for name in matching) and hub.reachable():
            continue  # nothing says how many there should be
        if matching and not _lacking(matching):
            return tuple(folder / name for name in matching)
    return ()


_SHARD = re.compile(r"(?<!\d)(\d+)[-_.]of[-_.](\d+)(?!\d)")
"""Which shard of how many a file's name says it is: `train-00000-of-00013.parquet`, with a hash behind that too."""


def _lacking(names: Sequence[str]) -> str | None:
    """What is not there, or not as it should be, of shards that say in their names how many they are."""
    found = [(name, shard) for name in names if (shard := _SHARD.search(name))]
    if not found:
        return None
    totals = sorted({int(shard[2]) for _, shard in found})
    if len(totals) > 1 or len(found) < len(names):
        odd = next((name for name in names if not _SHARD.search(name)), found[-1][0])
        return f"{found[0][0]} and {odd} are not of one set"
    by_number = Counter(int(shard[1]) for _, shard in found)
    if twice := [number for number, count in sorted(by_number.items()) if count > 1]:
        both = [name for name, shard in found if int(shard[1]) == twice[0]]
        return f"{' and '.join(both[:2])} are the same shard"
    first = 0 if 0 in by_number or totals[0] not in by_number else 1  # some count from 1
    lacking = sorted(set(range(first, first + totals[0])) - by_number.keys())
    if not lacking:
        return None
    return f"{len(found)} of {totals[0]} shards are there; missing: {', '.join(map(str, lacking[:10]))}"


def _listing(task: str, source: HubFiles, instead: str) -> list[str]:
    """The names of the files in a task's dataset repository."""
    from huggingface_hub import HfApi

    revision = source.revision or "main"
    if not hub.reachable():
        raise TallmasksError(missing_from_hub(task, source, instead) or f"{task}: the hub does not answer")
    commit = hub.full_commit(source.hub, revision, "dataset")
    try:
        found = HfApi().dataset_info(source.hub, revision=commit, timeout=30)
    except Exception as error:  # not there, moved, gated, or the connection broke: each has its own type
        raise TallmasksError(
            f"{task}: huggingface.co/datasets/{source.hub} at {revision}: {hub.trouble(error)}. {instead}"
        ) from None
    return [sibling.rfilename for sibling in found.siblings or ()]


def _natural(name: str | Path) -> list[str | int]:
    """Sort key with numbers by their value: 2.tar before 10.tar."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(name))]
