"""The project on disk: params.yaml, and the state of the files in store/ and results/."""

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
    """The plan of the project in `root`.  Raises TallmasksError if params.yaml is missing or wrong."""
    return Plan(read_params(root / FILE), root)


class Files:
    """Checks nodes against the files on disk: headers of artifacts, full content of results.

    Unchanged artifacts are read once.
    """

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._problems: dict[tuple[str, int, int, int], str] = {}

    def problem(self, node: Node) -> str | None:
        """Why a node must be rebuilt; None if its files exist and match its recipe."""
        path = self.root / node.path
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return f"{node.path} is not there"
        state = (f"{node.path} {node.digest}", status.st_ino, status.st_size, status.st_ctime_ns)
        if state not in self._problems or node.stage.is_result:  # its other files can change alone
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
        return self.problem(node) is None

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The artifacts to build for `nodes`, sorted by path.  Existing files need no inputs."""
        missing: dict[str, Node] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node.path not in missing and not self.there(node):
                missing[node.path] = node
                waiting.extend(node.all_inputs)
        return [missing[path] for path in sorted(missing) if not missing[path].stage.is_result]


def damaged_artifacts(root: Path = Path()) -> list[Damaged]:
    """One error for each artifact with a header that is unreadable or does not match the file name."""
    errors = []
    for path in entries_under(root / STORE):
        if ARTIFACT.fullmatch(path.name):
            try:
                read_label(path)
            except Damaged as error:
                errors.append(error)
            except FileNotFoundError:  # another process moved it
                pass
    return errors
