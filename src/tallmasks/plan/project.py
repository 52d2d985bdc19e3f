"""The project on disk: params.yaml, and which files of the store and of results/ are there and right."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tallmasks.artifacts.folders import STORE, entries_under
from tallmasks.artifacts.labels import ARTIFACT, Damaged, digest_of, read_label
from tallmasks.plan import drawings  # noqa: F401  (declares every stage)
from tallmasks.plan.node import Node
from tallmasks.plan.params import FILE, read_params
from tallmasks.plan.planner import Plan


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in the folder `root`.

    Raises TallmasksError where there is no params.yaml, or `params_model` does not allow it.
    """
    return Plan(read_params(root / FILE), root)


class Files:
    """The files of a plan's nodes on disk.

    It reads headers of artifacts, and results files whole; each once while it stays the same.
    """

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._problems: dict[tuple[str, int, int, int], str] = {}

    def problem(self, node: Node) -> str | None:
        """Why the files of a node have to be made; None where they are there and right."""
        path = self.root / node.path
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return f"{node.path} is not there"
        state = (f"{node.path} {node.digest}", status.st_ino, status.st_size, status.st_ctime_ns)
        if state not in self._problems or node.stage.is_result:  # whose other files can change alone
            self._problems[state] = self._read(node) or ""
        return self._problems[state] or None

    def _read(self, node: Node) -> str | None:
        try:
            label = read_label(self.root / node.path)
        except FileNotFoundError:
            return f"{node.path} is not there"
        except Damaged as damaged:
            return str(damaged)
        if digest_of(label.recipe) != node.digest:
            return f"{Path(node.path).parent} is of other parameters: what it is made from has changed"
        return None

    def there(self, node: Node) -> bool:
        """Whether the files of a node are there and right."""
        return self.problem(node) is None

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The artifacts that have to be made to have `nodes`, each once; what is there needs no inputs."""
        missing: dict[str, Node] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node.path not in missing and not self.there(node):
                missing[node.path] = node
                waiting.extend(node.all_inputs)
        return [missing[path] for path in sorted(missing) if not missing[path].stage.is_result]


def damaged_artifacts(root: Path = Path()) -> list[Damaged]:
    """The files of the store whose header is not that of their name."""
    damaged = []
    for path in entries_under(root / STORE):
        if ARTIFACT.fullmatch(path.name):
            try:
                read_label(path)
            except Damaged as found:
                damaged.append(found)
            except FileNotFoundError:  # another process moved it
                pass
    return damaged
