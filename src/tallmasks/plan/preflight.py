"""Before a build: downloads that are neither in this machine's hub cache nor to be had now.

Without it up to sixty jobs would fail, one after the other.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallmasks.errors import TallmasksError
from tallmasks.io import hub
from tallmasks.models.families import family
from tallmasks.parallel import parallel
from tallmasks.tasks.dataset_files import is_cached

if TYPE_CHECKING:
    from tallmasks.plan.node import Node


def unavailable(nodes: Iterable[Node]) -> list[str]:
    """One message for each dataset or file that `nodes` need and that cannot be had.

    The network is asked once, and only for files that are not in the cache.
    """
    messages = (node.stage.missing(node) for node in nodes if node.stage.missing and not _is_local(node))
    return list(dict.fromkeys(filter(None, messages)))


def missing_file(node: Node) -> str | None:
    """The message for a model's file on the hub; None for one that a library finds by its tag."""
    wanted = _model_files(node.params)
    if wanted is None or wanted.is_cached() or hub.reachable():
        return None
    names = list(itertools.chain.from_iterable(wanted.files))
    return hub.absent(wanted.repository, names, wanted.revision)


@dataclass(frozen=True)
class Wanted:
    """Files of a repository on the hub.

    Attributes:
        files: groups of names, of a dataset of globs; of each group the first is read that the repository has.
    """

    repository: str
    revision: str
    kind: hub.Kind
    files: tuple[tuple[str, ...], ...]

    def is_cached(self) -> bool:
        """Whether this machine's hub cache has them."""
        if self.kind == "dataset":
            return is_cached(self.repository, self.revision, itertools.chain.from_iterable(self.files))
        return all(any(hub.cached(self.repository, name, self.revision) for name in names) for names in self.files)

    def size(self) -> int:
        """Bytes of the download.  Raises TallmasksError where the hub does not answer, or has no such files."""
        sizes = hub.sizes(self.repository, self.revision, self.kind)
        read = set[str]()
        for names in self.files:
            matching = next(filter(None, (fnmatch.filter(sizes, name) for name in names)), None)
            if matching is None:
                where = hub.address(self.repository, " or ".join(names), self.revision, self.kind)
                raise TallmasksError(f"{where}: the repository has no such file")
            read |= set(matching)
        return sum(sizes[name] for name in read)


def downloads(nodes: Iterable[Node]) -> list[Wanted]:
    """What jobs would download to make `nodes`, each once."""
    of_hub = (node.params for node in nodes if not _is_local(node))
    wanted = dict.fromkeys(_dataset_files(params) or _model_files(params) for params in of_hub)
    return [one for one in wanted if one and not one.is_cached()]


def _is_local(node: Node) -> bool:
    """Whether it is made from the user's own folder or file instead."""
    return not {"data", "weights"}.isdisjoint(node.sources)


def bytes_of(wanted: Iterable[Wanted]) -> tuple[int, list[str]]:
    """Bytes of all of them together, and a message for each that the hub does not give, though it answers."""

    def ask(one: Wanted) -> tuple[int, str]:
        try:
            return one.size(), ""
        except TallmasksError as error:
            return 0, str(error)

    answers = parallel(ask, wanted, threads=8)
    return sum(size for size, _ in answers), [message for _, message in answers if message]


def _dataset_files(params: Mapping[str, Any]) -> Wanted | None:
    data = params.get("data", {})
    if not data.get("hub"):  # a local folder, or data that only their authors give out
        return None
    return Wanted(data["hub"], data["revision"] or "main", "dataset", tuple((name,) for name in data["files"].values()))


def _model_files(params: Mapping[str, Any]) -> Wanted | None:
    if isinstance(named := params.get("pretrained"), Mapping) and "hub" in named:
        return Wanted(named["hub"], named.get("revision", "main"), "model", family(params).pretrained_files(named))
    if "repository" in (named := params.get("checkpoint", {})):
        return Wanted(named["repository"], named["revision"], "model", ((named["file"],),))
    return None
