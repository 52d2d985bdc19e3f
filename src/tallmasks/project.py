"""The project on disk: params.yaml, what lies in the store, and whether a results folder is what the plan asks for."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tallmasks import params
from tallmasks.artifacts import ARTIFACT, Damaged, Label, identity, load_json, read_label, same
from tallmasks.errors import TallmasksError
from tallmasks.plain_files import all_inside, inside
from tallmasks.plan import ZEROSHOT, Node, Plan
from tallmasks.seals import CONTENT, SEAL, content_of_json, seal_of

SCRATCH = Path(".tallmasks")
DAMAGED = SCRATCH / "damaged"
UNFINISHED = SCRATCH / "training"
CHECKED = SCRATCH / "checked"
STORE = Path("store")
RESULTS = Path("results")
LOGS = Path("logs")
PROVENANCE = "provenance.json"
DRAWN_FOLDERS = {"figure": "figures", "paper_table": "tables"}
"""In results/<model>/."""
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
"""The hidden name under which a file is written before it gets its own."""


def open_plan(root: Path = Path()) -> Plan:
    """The plan of the project in the folder `root`.

    Raises:
        TallmasksError: there is no params.yaml, or it is not what its schema allows.
    """
    read = params.read(root / params.FILE)
    params.check(read, root)
    return Plan(read, root)


def refuse_links_out(artifacts: Iterable[Path | str] = ()) -> None:
    """Refuse to go on where a symbolic link leads out of the folders that the workflow writes to.

    Args:
        artifacts: what may be written in the store, where other links are the user's own.

    Raises:
        TallmasksError: an artifact's folder, or something in results/, logs/ or .tallmasks/, leads out of the project.
    """
    for folder in sorted({STORE, *(Path(path).parent for path in artifacts)}):
        inside(folder)
    for folder in (RESULTS, SCRATCH, LOGS):
        all_inside(folder)


def entries_under(folder: Path) -> Iterator[Path]:
    """What lies under a folder, sorted: whatever is no folder, and a folder where an artifact should be.  Neither the
    folder itself nor anything in it is followed as a link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and not ARTIFACT.fullmatch(entry.name):
            yield from entries_under(Path(entry.path))
        else:
            yield Path(entry.path)


def files_under(folder: Path) -> Iterator[Path]:
    """The plain files among `entries_under`."""
    return (path for path in entries_under(folder) if path.is_file() and not path.is_symlink())


class Store:
    """What lies on disk of a plan's artifacts, and whether it is what it should be.

    Reads headers, each once for as long as its file stays the same; values are read by the jobs that use them, by
    `tallmasks verify` and by the guard of the DVC stages.
    """

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._labels: dict[str, tuple[tuple[int, int, int], Label | Damaged]] = {}
        self._right: set[str] = set()
        self._stale: dict[str, str] = {}  # what this process has found to be made from damage, also once it is moved

    def label(self, path: str) -> Label | Damaged | None:
        """What the artifact at a path says of itself; what is wrong with it; None where nothing is."""
        try:
            found = (self.root / path).stat()
        except FileNotFoundError:
            return None if not (self.root / path).is_symlink() else Damaged(Path(path), "is a link to nothing")
        now = (found.st_ino, found.st_size, found.st_ctime_ns)
        known = self._labels.get(path)
        if known is None or known[0] != now:
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
        there, is wrong itself or has another content now (see `tallmasks.artifacts.same`).  What it was made from may
        be absent: nothing needs it any more.
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


def is_artifact(path: Path) -> bool:
    """Whether the workflow made this file, as far as its header says: its recipe is the one that its name carries."""
    try:
        return ARTIFACT.fullmatch(path.name) is not None and bool(read_label(path))
    except (Damaged, OSError):
        return False


def set_aside(path: Path, root: Path = Path()) -> Path | None:
    """Move what is damaged or made from damage to .tallmasks/damaged/, where nothing looks for it; where it is then.

    None where somebody else has done so already.
    """
    target = inside(root / DAMAGED, root) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    while target.exists() or target.is_symlink():
        target = target.with_name(f"{target.name}.{secrets.token_hex(2)}")
    try:
        (root / path).rename(target)
    except FileNotFoundError:
        return None
    return target


def provenance_of(folder: Path, name: str = PROVENANCE) -> dict[str, Any]:
    """A provenance that vouches for some files of a results folder, checked with all of them.

    Raises:
        Damaged: it is not there or not what was written, or one of the files is not.
    """
    path = folder / name
    try:
        if not path.is_file():
            raise Damaged(path, "is not there")
        provenance = load_json(path)
        vouched = provenance["sha256"]
        if provenance[SEAL] != seal_of(provenance) or provenance[CONTENT] != content_of_json({"sha256": vouched}):
            raise Damaged(path, "is not what was written there: its seal is broken")
        for file, expected in vouched.items():
            found = folder / file
            if not found.is_file():
                raise Damaged(found, "is not there")
            if hashlib.sha256(found.read_bytes()).hexdigest() != expected:
                raise Damaged(found, f"is not what was written there: its sha256 is not the one in {name}")
        identity(provenance[CONTENT], provenance["machine"])
        dict(provenance["made_from"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError):
        raise Damaged(path, "cannot be read") from None
    return provenance


class Results:
    """The results folders of a plan, and whether their files are what it asks for."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    @staticmethod
    def folder(view: str, model: str, benchmark: str) -> Path:
        """Of a view on a benchmark; its tables and its zero-shot accuracies are in the benchmark's own."""
        folder = RESULTS / model / benchmark
        return folder if view in ("benchmark", ZEROSHOT) else folder / view

    @staticmethod
    def provenance(view: str) -> str:
        """The file in a view's folder that vouches for it."""
        return f"{view}.{PROVENANCE}" if view == ZEROSHOT else PROVENANCE

    @staticmethod
    def drawn_folder(kind: str, model: str) -> Path:
        """Of the figures or the paper's tables of a model."""
        return RESULTS / model / DRAWN_FOLDERS[kind]

    def artifacts(self, view: str, model: str, benchmark: str) -> dict[str, list[Node]]:
        """The artifacts that a view is written from, by role, as far as they are known."""
        found = dict(self.plan.view_artifacts(view, model, benchmark))
        for role, source in self.plan.pretrained(model).items():
            if isinstance(source, Node):
                found[role] = [source]
        if view == "subsets" and (known := self.plan.subsets(model, benchmark)) is not None:
            found["subsets"] = [node for _, node in known]
        return found

    def view_staleness(self, view: str, model: str, benchmark: str) -> str | None:
        """Why a view's folder has to be written anew; None if it is what the plan asks for, by content."""
        recipe = self.plan.view(view, model, benchmark)
        try:
            provenance = self._vouching(self.folder(view, model, benchmark), self.provenance(view), recipe)
        except Damaged as damaged:
            return str(damaged)
        reason = self.store.changed(self.artifacts(view, model, benchmark), provenance["made_from"])
        return None if reason is None else f"it was written from {reason}"

    def drawn_staleness(self, recipe: Mapping[str, Any]) -> str | None:
        """Likewise of a figure or a table of the paper, which is drawn from results folders; by its recipe."""
        kind, model, name = recipe["kind"], recipe["params"]["model"], recipe["params"]["name"]
        try:
            provenance = self._vouching(self.drawn_folder(kind, model), f"{name}.{PROVENANCE}", recipe)
        except Damaged as damaged:
            return str(damaged)
        for role in recipe["inputs"]:
            benchmark, _, view = role.rpartition("/")
            folder = self.folder(view, model, benchmark)
            with suppress(Damaged):  # which is written anew, and then there is something to compare with
                shown = provenance_of(self.plan.root / folder)
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


@contextmanager
def only_writer(root: Path = Path()) -> Iterator[None]:
    """Hold the lock that a running snakemake holds.

    Raises:
        TallmasksError: a snakemake is at work in this folder.
    """
    inside(root / SCRATCH, root)
    (root / SCRATCH).mkdir(exist_ok=True)
    with (root / SCRATCH / "writer.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TallmasksError("a snakemake is at work in this folder; wait for it to end") from None
        yield
