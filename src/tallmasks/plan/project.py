"""The project on disk: params.yaml, the store, and whether results folders are what the plan asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallmasks.artifacts.folders import PROVENANCE, RESULTS, provenance_of
from tallmasks.artifacts.labels import Damaged, Label, read_label
from tallmasks.io.seals import CONTENT
from tallmasks.plan import chain, figure_stages, recipes
from tallmasks.plan.drawings import DRAWINGS
from tallmasks.plan.node import Node
from tallmasks.plan.params import FILE, read_params
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in the folder `root`.

    Raises TallmasksError where there is no params.yaml, or `params_model` does not allow it.
    """
    return Plan(read_params(root / FILE), root)


class Store:
    """A plan's artifacts on disk, and whether they are right.

    It reads headers only, each once while its file stays the same.
    """

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._labels: dict[tuple[str, int, int, int], Label | Damaged] = {}
        self._right: set[str] = set()
        self._stale: dict[str, str] = {}  # why an artifact was made from damage, also once it is moved

    def label(self, path: str) -> Label | Damaged | None:
        """The label of the artifact at a path, or what is wrong with it; None where there is none."""
        try:
            status = (self.root / path).lstat()
            state = (path, status.st_ino, status.st_size, status.st_ctime_ns)
            if state not in self._labels:
                self._labels[state] = read_label(self.root / path)
        except Damaged as damaged:
            self._labels[state] = Damaged(Path(path), damaged.why)
        except FileNotFoundError:
            return None
        return self._labels[state]

    def wrong(self, node: Node) -> str | None:
        """Why an artifact has to be made anew; None where it is right, or not there.

        It is wrong where its header is damaged, or an input is wrong or has another content now (`Label.is_still`).
        Inputs may be absent: nothing needs them any more.
        """
        label = None if node.path in self._right else self.label(node.path)
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
                if not label.is_still(recorded):
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


@dataclass(frozen=True)
class Vouched:
    """Files of results/ that one provenance vouches for: a view of a benchmark, a figure, or a table of the paper.

    Attributes:
        script: in workflow/scripts/.
        folder: where they lie.
        provenance: the name of the file that vouches for them.
        recipe: everything that decides their content.
        artifacts: what they are written from in the store, by role.
        sources: what ships with the project or is the user's, by role.
        views: what they are written from in results/, by role.
        waits_for: the artifact that says what else they are written from, while it is not there.
    """

    script: str
    folder: Path
    provenance: str
    recipe: Mapping[str, Any]
    artifacts: Mapping[str, Sequence[Node]]
    sources: Mapping[str, Path]
    views: Mapping[str, Vouched]
    waits_for: Node | None = None

    @property
    def vouching(self) -> Path:
        """The path of their provenance."""
        return self.folder / self.provenance

    def behind(self) -> list[Node]:
        """All artifacts that they, or the views that they show, are written from."""
        own = [node for nodes in self.artifacts.values() for node in nodes]
        return own + [node for view in self.views.values() for node in view.behind()]


class Results:
    """The results folders of a plan, and whether they are up to date."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    def view(self, name: str, model: str, benchmark: str) -> Vouched:
        """A view of a benchmark; of subsets it is written from those alone that are known yet."""
        view, plan = VIEWS[name], self.plan
        recipe = recipes.of_view(plan, view, model, benchmark)
        artifacts, waits_for = dict(view.artifacts(plan, model, benchmark)), None
        started_from = chain.pretrained_source(plan, model)
        artifacts |= {role: [source] for role, source in started_from.items() if isinstance(source, Node)}
        sources = {role: source for role, source in started_from.items() if isinstance(source, Path)}
        if view.grows:
            subsets = figure_stages.known_subsets(plan, model, benchmark)
            waits_for = artifacts["orders"][0] if subsets is None else None
            artifacts["subsets"] = [node for _, node in subsets or ()]
        return Vouched(name, view.folder(model, benchmark), view.provenance, recipe, artifacts, sources, {}, waits_for)

    def drawing(self, kind: str, model: str, name: str) -> Vouched:
        """A figure or a table of the paper."""
        drawing = DRAWINGS[kind]
        recipe = recipes.of_drawing(self.plan, drawing, model, name)
        parts = {role: role.rpartition("/") for role in recipe["inputs"]}
        views = {role: self.view(view, model, benchmark) for role, (benchmark, _, view) in parts.items()}
        return Vouched(kind, RESULTS / model / drawing.folder, f"{name}.{PROVENANCE}", recipe, {}, {}, views)

    def stale(self, written: Vouched) -> str | None:
        """Why files have to be written anew; None where they are up to date."""
        folder = self.plan.root / written.folder
        try:
            provenance = provenance_of(folder, written.provenance)
            recipe = provenance.get("recipe")
            if not isinstance(recipe, dict) or recipe.get("digest") != written.recipe["digest"]:
                raise Damaged(folder, "is of other parameters: what it is made from has changed")
        except Damaged as damaged:
            return str(damaged)
        made_from = provenance["made_from"]
        if reason := self.store.changed(written.artifacts, made_from):
            return f"it was written from {reason}"
        for role, view in written.views.items():
            with suppress(Damaged):  # a view that is written anew: it is compared then
                shown = provenance_of(self.plan.root / view.folder, view.provenance)
                if made_from.get(role, [""])[0] != shown[CONTENT]:
                    return f"it shows what {view.folder} no longer says"
                if (reason := self.stale(view)) is not None:
                    return f"it shows {view.folder}, which has to be written anew: {reason}"
        return None
