"""The project on disk: params.yaml, what lies in the store, and whether a results folder is what the plan asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tallmasks.plan import params, recipes
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import DRAWINGS, View
from tallmasks.store.artifacts import Damaged, Label, read_label, same
from tallmasks.store.folders import PROVENANCE, RESULTS, provenance_of
from tallmasks.store.seals import CONTENT


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in the folder `root`.

    Raises TallmasksError where there is no params.yaml, or it is not what `params_model` allows.
    """
    read = params.read(root / params.FILE)
    params.check(read)
    return Plan(read, root)


class Store:
    """What lies on disk of a plan's artifacts, and whether it is what it should be.

    Reads headers, each once for as long as its file stays the same; values are read by the jobs that use them, and
    by `tallmasks verify`.
    """

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._labels: dict[str, tuple[tuple[int, int, int] | None, Label | Damaged]] = {}
        self._right: set[str] = set()
        self._stale: dict[str, str] = {}  # what this process has found to be made from damage, also once it is moved

    def label(self, path: str) -> Label | Damaged | None:
        """What the artifact at a path says of itself; what is wrong with it; None where nothing is."""
        try:
            found = (self.root / path).stat()
            now = (found.st_ino, found.st_size, found.st_ctime_ns)
        except OSError:  # a link to nothing or to itself, say
            now = None
        known = self._labels.get(path)
        if known is None or known[0] != now or now is None:
            try:
                known = (now, read_label(self.root / path))
            except Damaged as damaged:
                known = (now, Damaged(Path(path), damaged.why))
            except FileNotFoundError:  # gone since
                return None
            self._labels[path] = known
        return known[1]

    def wrong(self, node: Node) -> str | None:
        """Why an artifact that is there has to be made anew; None where it is right, or not there.

        It is wrong where its header is not what was written, or where something that it was made from, and that is
        there, is wrong itself or has another content now (see `tallmasks.store.artifacts.same`).  What it was made
        from may be absent: nothing needs it any more.
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
        """What is no longer as those that were made from `inputs` recorded it in `made_from`; None if all of it is."""
        for role, nodes in inputs.items():
            recorded = made_from.get(role, ())
            if len(recorded) != len(nodes):
                return f"something else than {role}"
            for node, known in zip(nodes, recorded, strict=True):
                label = self.label(node.path)
                if label is None and node.path in self._stale:
                    return f"what has to be made anew: {self._stale[node.path]}"
                if label is None or isinstance(label, Damaged):
                    continue  # it is made again, and then there is something to compare with
                if not same(known, label.identity):
                    return f"another content than {node.path} has now"
                if (wrong := self.wrong(node)) is not None:
                    return f"what has to be made anew: {wrong}"
        return None

    def there(self, node: Node) -> bool:
        """Whether an artifact is there and right."""
        return self.label(node.path) is not None and self.wrong(node) is None

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The artifacts that would have to be made to have `nodes`, each once; what is there needs no inputs."""
        found: dict[str, Node] = {}
        todo = list(nodes)
        while todo:
            node = todo.pop()
            if node.path not in found and not self.there(node):
                found[node.path] = node
                todo.extend(needed for nodes in node.inputs.values() for needed in nodes)
        return [found[path] for path in sorted(found)]


class Results:
    """The results folders of a plan, and whether their files are what it asks for."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    def artifacts(self, view: View, model: str, benchmark: str) -> dict[str, list[Node]]:
        """The artifacts that a view is written from, by role, as far as they are known."""
        found = dict(view.artifacts(self.plan, model, benchmark))
        for role, source in self.plan.pretrained_source(model).items():
            if isinstance(source, Node):
                found[role] = [source]
        if view.grows and (known := self.plan.subsets(model, benchmark)) is not None:
            found["subsets"] = [node for _, node in known]
        return found

    def view_staleness(self, view: View, model: str, benchmark: str) -> str | None:
        """Why a view's files have to be written anew; None if they are what the plan asks for, by content."""
        recipe = recipes.of_view(self.plan, view, model, benchmark)
        try:
            provenance = self._vouching(view.folder(model, benchmark), view.provenance, recipe)
        except Damaged as damaged:
            return str(damaged)
        reason = self.store.changed(self.artifacts(view, model, benchmark), provenance["made_from"])
        return None if reason is None else f"it was written from {reason}"

    def drawn_staleness(self, recipe: Mapping[str, Any]) -> str | None:
        """Likewise of a figure or a table of the paper, which is drawn from views; by its recipe."""
        drawing, model = DRAWINGS[recipe["kind"]], recipe["params"]["model"]
        name = recipe["params"]["name"]
        try:
            provenance = self._vouching(RESULTS / model / drawing.folder, f"{name}.{PROVENANCE}", recipe)
        except Damaged as damaged:
            return str(damaged)
        for role, (benchmark, view) in zip(recipe["inputs"], recipes.shown_views(recipe), strict=True):
            folder = view.folder(model, benchmark)
            with suppress(Damaged):  # which is written anew, and then there is something to compare with
                shown = provenance_of(self.plan.root / folder, view.provenance)
                if provenance["made_from"].get(role, [""])[0].split("/")[0] != shown[CONTENT]:
                    return f"it shows what {folder} no longer says"
                if (reason := self.view_staleness(view, model, benchmark)) is not None:
                    return f"it shows {folder}, which has to be written anew: {reason}"
        return None

    def _vouching(self, folder: Path, name: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """A provenance of the recipe that is asked for."""
        provenance = provenance_of(self.plan.root / folder, name)
        if not isinstance(provenance.get("recipe"), dict) or provenance["recipe"].get("digest") != recipe["digest"]:
            raise Damaged(folder, "is of other parameters: what it is made from has changed")
        return provenance
