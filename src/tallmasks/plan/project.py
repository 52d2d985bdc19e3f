"""The project on disk: params.yaml, the store, and whether results folders are what the plan asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tallmasks.plan import params, recipes
from tallmasks.plan.drawings import DRAWINGS
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import View
from tallmasks.store.artifacts import Damaged, Label, read_label, same
from tallmasks.store.folders import PROVENANCE, RESULTS, provenance_of
from tallmasks.store.seals import CONTENT


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in the folder `root`.

    Raises TallmasksError where there is no params.yaml, or `params_model` does not allow it.
    """
    content = params.read(root / params.FILE)
    params.check(content)
    return Plan(content, root)


class Store:
    """A plan's artifacts on disk, and whether they are right.

    It reads headers only, each once while its file stays the same.
    """

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._labels: dict[str, tuple[tuple[int, int, int] | None, Label | Damaged]] = {}
        self._right: set[str] = set()
        self._stale: dict[str, str] = {}  # why an artifact was made from damage, also once it is moved

    def label(self, path: str) -> Label | Damaged | None:
        """The label of the artifact at a path, or what is wrong with it; None where there is none."""
        try:
            status = (self.root / path).stat()
            state = (status.st_ino, status.st_size, status.st_ctime_ns)
        except OSError:  # a link to nothing or to itself, say
            state = None
        before, label = self._labels.get(path, (None, None))
        if label is None or state is None or before != state:
            try:
                label = read_label(self.root / path)
            except Damaged as damaged:
                label = Damaged(Path(path), damaged.why)
            except FileNotFoundError:  # gone since
                return None
            self._labels[path] = (state, label)
        return label

    def wrong(self, node: Node) -> str | None:
        """Why an artifact has to be made anew; None where it is right, or not there.

        It is wrong where its header is damaged, or an input is wrong or has another content now (`artifacts.same`).
        Inputs may be absent: nothing needs them any more.
        """
        if node.path in self._right:
            return None
        label = self.label(node.path)
        if label is None:
            return None
        if isinstance(label, Damaged):
            return str(label)
        reason = self.changed(node.inputs, label.made_from)
        if reason is None:
            self._right.add(node.path)
            return None
        self._stale[node.path] = f"{node.path} was made from {reason}"
        return self._stale[node.path]

    def changed(self, inputs: Mapping[str, Sequence[Node]], made_from: Mapping[str, Sequence[str]]) -> str | None:
        """Which of `inputs` is no longer as `made_from` records it; None where all are."""
        for role, nodes in inputs.items():
            identities = made_from.get(role, ())
            if len(identities) != len(nodes):
                return f"something else than {role}"
            for node, recorded in zip(nodes, identities, strict=True):
                label = self.label(node.path)
                if label is None and node.path in self._stale:
                    return f"what has to be made anew: {self._stale[node.path]}"
                if label is None or isinstance(label, Damaged):
                    continue  # made again, and compared then
                if not same(recorded, label.identity):
                    return f"another content than {node.path} has now"
                if (wrong := self.wrong(node)) is not None:
                    return f"what has to be made anew: {wrong}"
        return None

    def there(self, node: Node) -> bool:
        """Whether an artifact is there and right."""
        return self.label(node.path) is not None and self.wrong(node) is None

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The artifacts that have to be made to have `nodes`, each once; what is there needs no inputs."""
        missing: dict[str, Node] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node.path not in missing and not self.there(node):
                missing[node.path] = node
                waiting.extend(needed for nodes in node.inputs.values() for needed in nodes)
        return [missing[path] for path in sorted(missing)]


class Results:
    """The results folders of a plan, and whether they are up to date."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    def artifacts(self, view: View, model: str, benchmark: str) -> dict[str, list[Node]]:
        """The artifacts that a view is written from, by role; of subsets only those that are known yet."""
        artifacts = dict(view.artifacts(self.plan, model, benchmark))
        for role, source in self.plan.pretrained_source(model).items():
            if isinstance(source, Node):
                artifacts[role] = [source]
        if view.grows and (subsets := self.plan.subsets(model, benchmark)) is not None:
            artifacts["subsets"] = [node for _, node in subsets]
        return artifacts

    def view_staleness(self, view: View, model: str, benchmark: str) -> str | None:
        """Why a view's files have to be written anew; None where they are up to date."""
        recipe = recipes.of_view(self.plan, view, model, benchmark)
        try:
            provenance = self._vouching(view.folder(model, benchmark), view.provenance, recipe)
        except Damaged as damaged:
            return str(damaged)
        reason = self.store.changed(self.artifacts(view, model, benchmark), provenance["made_from"])
        return None if reason is None else f"it was written from {reason}"

    def drawn_staleness(self, recipe: Mapping[str, Any]) -> str | None:
        """Likewise of a figure or a table of the paper, by its recipe."""
        drawing, model = DRAWINGS[recipe["kind"]], recipe["params"]["model"]
        name = recipe["params"]["name"]
        try:
            provenance = self._vouching(RESULTS / model / drawing.folder, f"{name}.{PROVENANCE}", recipe)
        except Damaged as damaged:
            return str(damaged)
        for role, (benchmark, view) in zip(recipe["inputs"], recipes.shown_views(recipe), strict=True):
            folder = view.folder(model, benchmark)
            with suppress(Damaged):  # a view that is written anew: it is compared then
                shown = provenance_of(self.plan.root / folder, view.provenance)
                if provenance["made_from"].get(role, [""])[0].split("/")[0] != shown[CONTENT]:
                    return f"it shows what {folder} no longer says"
                if (reason := self.view_staleness(view, model, benchmark)) is not None:
                    return f"it shows {folder}, which has to be written anew: {reason}"
        return None

    def _vouching(self, folder: Path, name: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
        provenance = provenance_of(self.plan.root / folder, name)
        if not isinstance(provenance.get("recipe"), dict) or provenance["recipe"].get("digest") != recipe["digest"]:
            raise Damaged(folder, "is of other parameters: what it is made from has changed")
        return provenance
