"""Before a build: what it must download that is neither in this machine's hub cache nor to be had now.

Without it, each of the jobs that download would fail in its turn, up to sixty of them with one message each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tallmasks.models.families import family
from tallmasks.store import hub
from tallmasks.tasks.catalogues import catalogue

if TYPE_CHECKING:
    from tallmasks.plan.node import Node


def unavailable(nodes: Iterable[Node]) -> list[str]:
    """One message for each dataset and file that `nodes` are made from and that cannot be had; empty if all is well.

    The network is asked only about what is not in the cache, and that once.
    """
    said: dict[str, None] = {}
    for node in nodes:
        local = {"data", "weights"} & node.sources.keys()  # a folder or file instead
        if node.stage.missing and not local and (message := node.stage.missing(node)):
            said[message] = None
    return list(said)


def missing_examples(node: Node) -> str | None:
    """What to say of examples that cannot be made now."""
    return catalogue(node.model).missing(node.params)


def missing_file(node: Node) -> str | None:
    """What to say of a file of a model on the hub; nothing of one that a library finds by its tag."""
    named = node.params.get("pretrained", node.params.get("checkpoint"))
    repository, revision = named.get("hub", named.get("repository")), named.get("revision", "main")
    if repository is None:
        return None
    files = [named["file"]] if "file" in named else list(family(node.params).pretrained_files(named))
    if any(hub.cached(repository, file, revision) for file in files) or hub.reachable():
        return None
    return hub.absent(repository, files[0], revision)
