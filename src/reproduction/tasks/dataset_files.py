"""Finds dataset files: in the Hugging Face hub cache, on the hub, or in a local folder."""

from __future__ import annotations

import fnmatch
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallmasks.errors import TallmasksError
from tallmasks.io import hub


@dataclass(frozen=True)
class HubFiles:
    """The location of a dataset on the Hugging Face hub.

    Attributes:
        hub: The dataset repository.
        files: Glob patterns for the files of "train" and "test"; * also matches slashes.
        revision: The commit; None takes the branch main at the first download.
    """

    hub: str
    files: Mapping[str, str]
    revision: str | None


@dataclass(frozen=True)
class Files:
    """The files of one published split, or a folder with one subfolder per class.

    ``origin`` is the dataset repository (``revision`` is its commit) or the local folder.
    """

    paths: tuple[Path, ...]
    origin: str
    revision: str | None


def from_hub(task: str, source: HubFiles, part: str, local: str) -> Files:
    """The files of ``part``, "train" or "test", from the hub cache or downloaded.

    Raises TallmasksError if files are unavailable, incomplete or damaged.  The message suggests a local folder of
    ``local``, such as "Parquet files", instead.
    """
    repository, revision, pattern = source.hub, source.revision or "main", source.files[part]
    paths = _cached(repository, revision, pattern)
    if not paths:
        names = _names_on_the_hub(task, source, local)
        matching = sorted(fnmatch.filter(names, pattern), key=_natural)
        where = hub.address(repository, pattern, revision, "dataset")
        if not matching:
            raise TallmasksError(
                f"{where}: no such files; the repository has {', '.join(sorted(names)[:10])}. {_instead(task, local)}"
            )
        refuse_part(task, part, where, matching)
        paths = tuple(hub.download(repository, name, revision, "dataset") for name in matching)
    for path in paths:
        hub.refuse_damaged(path)
    return Files(paths, f"huggingface.co/datasets/{repository}", hub.commit_of(paths[0]))


def missing_from_hub(task: str, source: HubFiles, local: str) -> str | None:
    """An error message if a task's files are not cached and the hub does not answer, else None."""
    revision = source.revision or "main"
    if is_cached(source.hub, revision, source.files.values()) or hub.reachable():
        return None
    patterns = " ".join(f"--include '{pattern}'" for pattern in source.files.values())
    arguments = f"{source.hub} --repo-type dataset --revision {revision} {patterns}"
    where = hub.address(source.hub, "", revision, "dataset")
    return f"{task}: {where} is {hub.not_cached(arguments)}. {_instead(task, local)}"


def _instead(task: str, local: str) -> str:
    return f"Or set data.{task}.path in params.yaml to a local folder of {local}."


def is_cached(repository: str, revision: str, patterns: Iterable[str]) -> bool:
    """Whether the hub cache has all files of a dataset that match the glob patterns."""
    return all(_cached(repository, revision, pattern) for pattern in patterns)


def from_folder(task: str, part: str, folder: Path, patterns: Iterable[str], expected: str) -> Files:
    """The files in a local folder that match the first pattern with any match, in natural order (2 before 10).

    Raises TallmasksError if no file matches, shards are missing, or several CSV files match.
    """
    matches = (sorted((p for p in folder.glob(pattern) if not hidden(p, folder)), key=_natural) for pattern in patterns)
    paths = next(filter(None, matches), [])
    several = len(paths) > 1 and paths[0].suffix == ".csv"
    if not paths or several:
        there = sorted(path.name for path in folder.iterdir())[:10] if folder.is_dir() else ["no such folder"]
        listing = f"several: {', '.join(path.name for path in paths)}" if several else ", ".join(there) or "nothing"
        raise TallmasksError(
            f"{folder}: no {part} data of {task} (found: {listing}); expected {expected}. Correct data.{task}.path in "
            "params.yaml, or the files."
        )
    refuse_part(task, part, str(folder), [path.name for path in paths])
    return Files(tuple(paths), str(folder), None)


def refuse_part(task: str, part: str, where: str, names: Sequence[str]) -> None:
    """Raise TallmasksError for an incomplete set of shards, which would look like a smaller dataset."""
    if problem := _problem_with_shards(names):
        raise TallmasksError(
            f"{where}: {task}: {problem}. Expected every shard of {part} once: download the data again, or remove the "
            "files of other sets"
        )


@contextmanager
def reading(task: str, path: Path, expected: str) -> Iterator[None]:
    """Turn a library's error into a TallmasksError that names the file."""
    try:
        yield
    except (OSError, ValueError, EOFError, tarfile.TarError, zlib.error) as error:  # the first two also from Arrow
        why = " ".join(str(error).split())
        raise TallmasksError(
            f"{path}: {task}: the file is damaged or has another layout ({why}). Expected {expected}; delete it and "
            "download it again."
        ) from error


def hidden(path: Path, folder: Path) -> bool:
    """Whether a file or a folder above it is hidden; digests of the user's data ignore such files too."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _cached(repository: str, revision: str, pattern: str) -> tuple[Path, ...]:
    """The matching files in the hub cache if no shard is missing, else ()."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return ()
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    matching = sorted(fnmatch.filter(names, pattern), key=_natural)
    if not all((folder / name).exists() for name in matching):
        return ()  # a dangling link: the cached file was deleted
    if not all(_SHARD.search(name) for name in matching) and hub.reachable():
        return ()  # the names do not say how many files there should be
    return () if _problem_with_shards(matching) else tuple(folder / name for name in matching)


_SHARD = re.compile(r"(?<!\d)(\d+)[-_.]of[-_.](\d+)(?!\d)")
"""Shard number and shard count in a file name such as `train-00000-of-00013.parquet`."""


def _problem_with_shards(names: Sequence[str]) -> str | None:
    """The error if the files are an incomplete or mixed set of shards, else None."""
    shards = [_SHARD.search(name) for name in names]
    if not any(shards):
        return None
    numbers, totals = {shard and int(shard[1]) for shard in shards}, {shard and int(shard[2]) for shard in shards}
    total = totals.pop()
    if totals or not total or len(numbers) < len(names):
        return f"{', '.join(names[:5])} are not shards of one set"
    lacking = min((set(range(first, first + total)) - numbers for first in (0, 1)), key=len)  # some count from 1
    missing = ", ".join(map(str, sorted(lacking)[:10]))
    return f"{len(names)} of {total} shards found; missing: {missing}" if lacking else None


def _names_on_the_hub(task: str, source: HubFiles, local: str) -> list[str]:
    from huggingface_hub import HfApi

    revision = source.revision or "main"
    if not hub.reachable():
        raise TallmasksError(missing_from_hub(task, source, local) or f"{task}: the hub does not answer")
    try:
        return HfApi().list_repo_files(source.hub, revision=revision, repo_type="dataset")
    except Exception as error:  # missing, moved, gated and disconnected raise different types
        where = hub.address(source.hub, "", revision, "dataset")
        raise TallmasksError(f"{task}: {where}: {hub.trouble(error)}. {_instead(task, local)}") from None


def _natural(name: str | Path) -> list[str | int]:
    """Sort key that puts 2.tar before 10.tar."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(name))]
