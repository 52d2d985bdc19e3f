"""Before a build: what it must download that is neither in this machine's hub cache nor to be had now.

Without it, each of the jobs that download would fail in its turn, up to sixty of them with one message each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tallmasks.store import hub
from tallmasks.tasks.vision import data_files as sources
from tallmasks.tasks.vision.vision_tasks import task_of

if TYPE_CHECKING:
    from tallmasks.plan.plan import Node

KINDS = ("examples", "pretrained", "imported")
"""Kinds of artifacts that may be made from downloads."""


def unavailable(nodes: Iterable[Node]) -> list[str]:
    """One message for each dataset and file that `nodes` are made from and that cannot be had; empty if all is well.

    The network is asked only about what is not in the cache, and that once.
    """
    said: dict[str, None] = {}
    for node in nodes:
        if node.kind not in KINDS or {"data", "weights"} & node.sources.keys():  # a local folder or file instead
            continue
        params = node.params
        message = (
            _dataset(node) if node.kind == "examples" else _file(params.get("pretrained", params.get("checkpoint")))
        )
        if message:
            said[message] = None
    return list(said)


def _dataset(node: Node) -> str | None:
    return sources.missing(task_of(node.params)) if node.model == "vision" else None


def _file(named: Mapping[str, Any]) -> str | None:
    """What to say of a file of a model on the hub; nothing of one that open_clip finds by its tag."""
    repository, revision = named.get("hub", named.get("repository")), named.get("revision", "main")
    if repository is None:
        return None
    files = [named["file"]] if "file" in named else list(hub.OPEN_CLIP_FILES)
    if any(hub.cached(repository, file, revision) for file in files) or hub.reachable():
        return None
    return hub.absent(repository, files[0], revision)
