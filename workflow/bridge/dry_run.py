"""A dry run as people read it: its jobs by stage, and for each stage what is new about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.commands.why import earlier_recipes, news, shown
from tallmasks.plan import preflight
from tallmasks.plan.node import Node
from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError

if TYPE_CHECKING:
    from bridge import Bridge

Record = Mapping[str, Any]
"""What Snakemake says of a job that is to run."""


def by_stage(bridge: Bridge, records: Sequence[Record]) -> Iterator[str]:
    """One line a stage: how many jobs, of what, and why; then what they need of the machine."""
    jobs: dict[str, list[Record]] = {}
    for record in records:
        if record["output"]:  # or it only asks for others
            jobs.setdefault(record["rule_name"], []).append(record)
    width = max(map(len, jobs), default=0)
    for rule, some in jobs.items():
        reasons = Counter(reason(bridge, job) for job in some)
        ((why, count),) = reasons.most_common(1)
        others = f" ({count} of them)" if len(reasons) > 1 else ""
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        yield f"{len(some):>6} {rule.replace('_', ' '):<{width}}  {name_of(bridge, some[0])}{more}: {why}{others}"
    gpus = sum(job["resources"].get("gpu", 0) > 0 for some in jobs.values() for job in some)
    yield f"{gpus} of the jobs take a GPU." if gpus else "No job takes a GPU."
    nodes = [node for some in jobs.values() for job in some if (node := node_of(bridge, job))]
    yield from to_download(nodes)
    if problems := preflight.unavailable(nodes):
        yield f"Not to be had now: {len(problems)}. The first: {problems[0]}"


def to_download(nodes: Sequence[Node]) -> Iterator[str]:
    """What the hub's cache lacks of what `nodes` are made from."""
    wanted = preflight.downloads(nodes)
    if not wanted:
        return
    counts = Counter("data set" if one.kind == "dataset" else "model" for one in wanted)
    what = " and ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items())
    try:
        size = f", {preflight.bytes_of(wanted) / 1e9:.3g} GB" if hub.reachable() else ", and the hub does not answer"
    except TallmasksError as error:
        size = f"; {error}"
    yield f"To download: {what}{size}."


def name_of(bridge: Bridge, job: Record) -> str:
    """What a job makes, in short."""
    node = node_of(bridge, job)
    return node.slug if node else str(Path(job["output"][0]).parent)


def node_of(bridge: Bridge, job: Record) -> Node | None:
    """The artifact that a job makes; None where it writes results."""
    name = job["wildcards"].get("name")
    return bridge.store.plan.index.find(job["wildcards"]["model"], name) if name else None


def reason(bridge: Bridge, job: Record) -> str:
    """Why a job is to run."""
    node = node_of(bridge, job)
    if node is None:
        return _of_results(bridge, Path(job["output"][0]))
    if bridge.store.made_anew(node):
        return "asked for"
    if wrong := bridge.store.store.wrong(node):
        return wrong
    plan = bridge.store.plan
    if not earlier_recipes(plan, node):
        return "not made yet"
    changes = list(news(plan, node))
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"{changes[0]}{more}" if changes else "what it is made from changes"


def _of_results(bridge: Bridge, path: Path) -> str:
    try:
        what = shown(bridge.views.results, path)
        return (what.stale or "asked for") if what.provenance.exists() else "not made yet"
    except (TallmasksError, ValueError):  # a report's pages, say
        return "made anew for every report"
