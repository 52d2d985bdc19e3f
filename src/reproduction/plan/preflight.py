"""Checks before a build that all downloads are cached or available; otherwise up to sixty jobs fail one by one."""

from __future__ import annotations

import fnmatch
import itertools
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.families import family
from reproduction.tasks.dataset_files import is_cached
from tallmasks.errors import TallmasksError
from tallmasks.io import hub
from tallmasks.parallel import parallel

if TYPE_CHECKING:
    from reproduction.plan.node import Node


def unavailable(nodes: Iterable[Node]) -> list[str]:
    """One message for each dataset or file that `nodes` need and that is not available.

    Accesses the network only if a file is not cached.
    """
    messages = (node.stage.missing(node) for node in nodes if node.stage.missing and not _is_local(node))
    return list(dict.fromkeys(filter(None, messages)))


def missing_file(node: Node) -> str | None:
    """The message for a model file on the hub that is not available; None for a model that a library downloads."""
    wanted = _model_files(node.params)
    if wanted is None or has_copy(node) or wanted.is_cached() or hub.reachable():
        return None
    names = list(itertools.chain.from_iterable(wanted.files))
    return hub.absent(wanted.repository, names, wanted.revision)


def has_copy(node: Node) -> bool:
    """Whether the weights that a node needs are in the folder `pretrained.local`."""
    pretrained = node.params.get("pretrained")
    return isinstance(pretrained, Mapping) and "local" in pretrained and Path(pretrained["local"]).is_dir()


@dataclass(frozen=True)
class Wanted:
    """Files of a hub repository.

    Attributes:
        files: groups of alternative file names (datasets: globs); the first match of each group is downloaded.
    """

    repository: str
    revision: str
    kind: hub.Kind
    files: tuple[tuple[str, ...], ...]

    @property
    def command(self) -> str:
        """The line of a shell that downloads the files."""
        files = [word for names in self.files for name in names for word in ("--include", name)]
        words = ["hf", "download", self.repository, "--repo-type", self.kind, "--revision", self.revision]
        return shlex.join([*words, *files])

    def is_cached(self) -> bool:
        if self.kind == "dataset":
            return is_cached(self.repository, self.revision, itertools.chain.from_iterable(self.files))
        return all(any(hub.cached(self.repository, name, self.revision) for name in names) for names in self.files)

    def check(self) -> None:
        """Raises TallmasksError if the hub does not answer or lacks a file."""
        there = hub.sizes(self.repository, self.revision, self.kind)
        for names in self.files:
            if not any(fnmatch.filter(there, name) for name in names):
                where = hub.address(self.repository, " or ".join(names), self.revision, self.kind)
                raise TallmasksError(f"{where}: the repository has no such file")


def downloads(nodes: Iterable[Node]) -> list[Wanted]:
    """The files that are not cached and that the jobs of `nodes` would download."""
    return [one for one in dict.fromkeys(map(wanted_by, nodes)) if one and not one.is_cached()]


def wanted_by(node: Node) -> Wanted | None:
    """The hub's files that a job needs; None for local files, and for those that a library downloads."""
    return None if _is_local(node) or has_copy(node) else _dataset_files(node.params) or _model_files(node.params)


def _is_local(node: Node) -> bool:
    return not {"data", "weights"}.isdisjoint(node.sources)


def refused(wanted: Iterable[Wanted]) -> list[str]:
    """One message for each download that the hub does not give."""

    def ask(one: Wanted) -> str:
        try:
            one.check()
        except TallmasksError as error:
            return str(error)
        return ""

    return list(filter(None, parallel(ask, wanted, threads=8)))


def _dataset_files(params: Mapping[str, Any]) -> Wanted | None:
    data = params.get("data", {})
    if not data.get("hub"):  # a local folder, or data that only its authors distribute
        return None
    return Wanted(data["hub"], data["revision"] or "main", "dataset", tuple((name,) for name in data["files"].values()))


def _model_files(params: Mapping[str, Any]) -> Wanted | None:
    pretrained, checkpoint = params.get("pretrained"), params.get("checkpoint", {})
    if isinstance(pretrained, Mapping) and "hub" in pretrained:
        files = family(params).pretrained_files(pretrained)
        return Wanted(pretrained["hub"], pretrained.get("revision", "main"), "model", files)
    if "repository" in checkpoint:
        return Wanted(checkpoint["repository"], checkpoint["revision"], "model", ((checkpoint["file"],),))
    return None
