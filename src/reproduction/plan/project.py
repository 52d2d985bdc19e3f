"""The project on disk: params.yaml, its artifacts by file name, and the state of the files in store/ and results/."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from reproduction.artifacts.folders import STORE, entries_under
from reproduction.artifacts.labels import ARTIFACT, Damaged, digest_of, read_label
from reproduction.plan import figures_and_tables  # noqa: F401  (declares every stage)
from reproduction.plan.node import Node
from reproduction.plan.params import FILE, read_params
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS, NotOfThisBenchmark, results_of
from tallmasks.errors import TallmasksError


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in `root`.  Raises TallmasksError if params.yaml is missing or wrong."""
    return Plan(read_params(root / FILE), root)


class Index:
    """The artifacts of a plan by name.  Filled on demand, because a name contains digests of source files.

    ``unknown``: the folders with artifacts that `declared` cannot name, and why: a source file is missing.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.unknown: dict[Path, TallmasksError] = {}
        self._nodes: dict[tuple[str, str], Node] = {}
        self._left = self._views(plan.models)

    def add(self, node: Node) -> None:
        """Add a node and everything upstream of it.  Raises TallmasksError if a source file is missing."""
        if (node.model, node.name) not in self._nodes:
            self._nodes |= {(one.model, one.name): one for one in node.walk() if not one.stage.is_result}

    def find(self, model: str, name: str) -> Node:
        """The artifact of a file name.  Raises TallmasksError if params.yaml yields no such name."""
        while (model, name) not in self._nodes:
            if not self._left:
                raise TallmasksError(
                    f"{name}: params.yaml yields no artifact of this name; its parameters may have changed. Request a "
                    "results file instead"
                )
            with suppress(TallmasksError):  # source files of another model can be missing
                for node in self._artifacts(*self._left.pop(0)):
                    with suppress(TallmasksError):
                        self.add(node)
        return self._nodes[model, name]

    def declared(self, models: Iterable[str] | None = None) -> dict[str, Node]:
        """The artifacts of some models (default: all models), by path; not all of those below `unknown`."""
        for view, model, benchmark in self._views(models or self._plan.models):
            try:
                for node in self._artifacts(view, model, benchmark):
                    self.add(node)
            except TallmasksError as error:
                examples = Path("data", self._plan.models[model]["tasks"])
                self.unknown |= dict.fromkeys((STORE / model, STORE / examples), error)
        return {node.path: node for node in self._nodes.values()}

    def _views(self, models: Iterable[str]) -> list[tuple[str, str, str]]:
        plan = self._plan
        return [(view, model, name) for model in models for name in plan.benchmarks(model) for view in VIEWS]

    def _artifacts(self, view: str, model: str, benchmark: str) -> list[Node]:
        try:
            return VIEWS[view](self._plan, model, benchmark).all_inputs
        except NotOfThisBenchmark:
            return []


def closure(plan: Plan, model: str) -> list[Node]:
    """All artifacts upstream of a model's benchmark tables, sorted by path."""
    by_path: dict[str, Node] = {}
    for benchmark in plan.benchmarks(model):
        for nodes in results_of(plan, model, benchmark, plan.seeds[0]).values():
            by_path |= {node.path: node for top in nodes for node in top.walk()}
    return [by_path[path] for path in sorted(by_path)]


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
            return f"{node.path} does not exist"
        state = (f"{node.path} {node.digest}", status.st_ino, status.st_size, status.st_ctime_ns)
        if state not in self._problems or node.stage.is_result:  # its other files can change alone
            self._problems[state] = self._read(node) or ""
        return self._problems[state] or None

    def _read(self, node: Node) -> str | None:
        try:
            label = read_label(self.root / node.path)
        except FileNotFoundError:
            return f"{node.path} does not exist"
        except Damaged as damaged:
            return str(damaged)
        if digest_of(label.recipe) != node.digest:
            return f"{Path(node.path).parent} was made from another recipe: parameters or inputs have changed"
        return None

    def there(self, node: Node) -> bool:
        return self.problem(node) is None

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The artifacts and results to build for `nodes`, sorted by path.  Existing files need no inputs."""
        missing: dict[str, Node] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node.path not in missing and not self.there(node):
                missing[node.path] = node
                waiting.extend(node.all_inputs)
        return [missing[path] for path in sorted(missing)]


def damaged_artifacts(root: Path = Path()) -> list[Damaged]:
    """One error for each artifact with a header that is unreadable or does not match the file name."""
    errors = []
    for path in entries_under(root / STORE):
        if ARTIFACT.fullmatch(path.name):
            try:
                read_label(path)
            except Damaged as error:
                errors.append(error)
            except (FileNotFoundError, TallmasksError):  # another process moved it, or another user's file
                pass
    return errors
