"""The folders of results/: what each shows of a model, and the artifacts that it is written from.

A view's recipe has the benchmark's name and the order of its tasks, because its files show them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tallmasks import methods
from tallmasks.artifacts.folders import PROVENANCE, RESULTS
from tallmasks.errors import TallmasksError
from tallmasks.methods.merges import LEARNED
from tallmasks.models.families import STATISTICS, statistics_of
from tallmasks.plan import chain
from tallmasks.plan.chain import Seed
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.params import Benchmark, bundled_row
from tallmasks.plan.planner import Plan

Artifacts = dict[str, list[Node]]
WrittenFrom = Callable[[Plan, str, str], Artifacts]
ShownParams = Callable[[Plan, str, str], dict[str, Any]]


@dataclass(frozen=True)
class View:
    """Some files of results/<model>/<benchmark>/.

    Attributes:
        name: of the view, of its rule, of its script in workflow/scripts/ and of its own folder; in recipes.
        version: raised when a change of code changes what is written.
        artifacts: ``(plan, model, benchmark) -> the artifacts that it is written from``, by role.
        params: ``(plan, model, benchmark) -> the parameters that it depends on``.
        seeds: how many of the fine-tuning seeds it shows.
        files: what it always writes, without the provenance; some benchmarks have more.
        own_folder: whether it has a folder of its own, below the benchmark's.
        provenance: the file that vouches for its files.
        grows: whether it is written from more artifacts once some of them are there.
        any_tasks: whether a benchmark may evaluate other tasks than it merges.
        least_tasks: how many tasks a benchmark must have.
    """

    name: str
    version: int
    artifacts: WrittenFrom
    params: ShownParams
    files: Sequence[str]
    seeds: Literal["none", "first", "all"] = "first"
    own_folder: bool = True
    provenance: str = PROVENANCE
    grows: bool = False
    any_tasks: bool = False
    least_tasks: int = 1

    def folder(self, model: str, benchmark: str) -> Path:
        """Where its files lie."""
        folder = RESULTS / model / benchmark
        return folder / self.name if self.own_folder else folder

    def seeds_of(self, plan: Plan) -> tuple[int, ...]:
        """The fine-tuning seeds that it shows."""
        return {"none": (), "first": plan.seeds[:1], "all": plan.seeds}[self.seeds]

    def refused(self, benchmark: Benchmark) -> str | None:
        """Why it cannot be made of a benchmark; None where it can."""
        if benchmark.unseen and not self.any_tasks:
            return (
                "it shows models or masks of each task's own, and this benchmark evaluates other tasks than it merges; "
                "expected a benchmark that is a list of tasks"
            )
        if len(benchmark.merge) < self.least_tasks:
            return f"it needs {self.least_tasks} tasks, and this benchmark has {len(benchmark.merge)}; add tasks"
        return None


VIEWS: dict[str, View] = {}


def view(
    *, version: int, params: ShownParams = lambda plan, model, benchmark: {}, **fields: Any
) -> Callable[[WrittenFrom], WrittenFrom]:
    """Decorator: declare a view, named after a function ``(plan, model, benchmark) -> its artifacts``."""

    def register(artifacts: WrittenFrom) -> WrittenFrom:
        name = getattr(artifacts, "__name__")  # noqa: B009
        VIEWS[name] = View(name, version, artifacts, params, **fields)
        return artifacts

    return register


def _rows_of(plan: Plan, benchmark: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those of some methods that have a model for every task of a benchmark."""
    rows, unseen = map(methods.get, names), plan.benchmark(benchmark).unseen
    return tuple(row.name for row in rows if not unseen or row.looks_at_one_task or row.section == "merging")


def _shown(plan: Plan, benchmark: str, names: Sequence[str]) -> dict[str, Any]:
    tasks = plan.benchmark(benchmark)
    merged = {"merged": list(tasks.merge)} if tasks.unseen else {}
    return {"methods": list(names), "shown": methods.shown(names), **merged}


def _rows(plan: Plan, model: str, benchmark: str) -> dict[str, Any]:
    """Raises TallmasksError where there are none."""
    rows = _rows_of(plan, benchmark, plan.method_names)
    if not rows:
        raise TallmasksError(
            f"results/{model}/{benchmark}: it evaluates tasks that are not merged, and no row of `methods` in "
            f"params.yaml has a model for these ({', '.join(plan.method_names)}); add a merge, such as task_arithmetic"
        )
    agreements = [methods.masking(merge).name for merge in agreeing_merges(plan, benchmark)]
    return {**_shown(plan, benchmark, rows), "agreements": agreements}


def agreeing_merges(plan: Plan, benchmark: str) -> list[str]:
    """The merges whose masks are counted for a consensus: of masks of the evaluated tasks."""
    rows = [] if plan.benchmark(benchmark).unseen else map(methods.get, plan.method_names)
    return list(dict.fromkeys(row.merge for row in rows if row.merge and "agreement" in row.needs))


def results_of(plan: Plan, model: str, benchmark: str, seed: Seed) -> Artifacts:
    """The artifacts behind the tables of a benchmark, by role."""
    tasks, merges = plan.members(plan.tasks_for(model, benchmark)), agreeing_merges(plan, benchmark)
    return {
        **_evaluations(plan, model, benchmark, seed, _rows_of(plan, benchmark, plan.method_names)),
        "agreements": [chain.consensus(plan, model, tasks, merge, seed) for merge in merges],
        "merged": [chain.merge(plan, model, tasks, merge, seed) for merge in merges],
    }


def _evaluations(plan: Plan, model: str, benchmark: str, seed: Seed, names: Sequence[str]) -> Artifacts:
    """The evaluations of some methods and of the fine-tuned models on a benchmark, by role."""
    tasks, merged = (plan.members(part) for part in (plan.tasks_for(model, benchmark), plan.benchmark(benchmark).merge))
    rows = [methods.get(name) for name in names]
    alone = [row for row in rows if row.looks_at_one_task] + [methods.get("fine_tuned")]
    together = [row.name for row in rows if not row.looks_at_one_task]
    return {
        "task_evaluations": [
            chain.evaluate_task(plan, model, task, name, seed)
            for name in sorted({row.name for row in alone})
            for task in tasks
        ],
        "evaluations": [
            chain.evaluate(plan, model, tasks, name, seed)
            if tasks == merged
            else chain.evaluate_unseen(plan, model, merged, tasks, name, seed)
            for name in together
        ],
    }


def _of_seeds(seeds: Sequence[int], of_seed: Callable[[int], Artifacts]) -> Artifacts:
    return {f"{seed}/{role}": nodes for seed in seeds for role, nodes in of_seed(seed).items()}


@view(
    version=8,
    files=("table.csv", "table.md", "per_task.csv", "intervals.csv", "selection.json", "agreement.csv", "metrics.json"),
    own_folder=False,
    params=_rows,
    any_tasks=True,
)
def tables(plan: Plan, model: str, name: str) -> Artifacts:
    """The tables of a benchmark."""
    return _of_seeds(plan.seeds[:1], lambda seed: results_of(plan, model, name, seed))


@view(version=5, files=("table.csv", "table.md"), seeds="all", params=_rows, any_tasks=True)
def seeds(plan: Plan, model: str, name: str) -> Artifacts:
    """The tables over all fine-tuning seeds."""
    return _of_seeds(plan.seeds, lambda seed: results_of(plan, model, name, seed))


@view(
    version=1,
    files=("zeroshot.csv",),
    seeds="none",
    own_folder=False,
    provenance=f"zeroshot.{PROVENANCE}",
    any_tasks=True,
)
def zeroshot(plan: Plan, model: str, name: str) -> Artifacts:
    """zeroshot.csv, which needs no fine-tuning."""
    members = plan.members(plan.tasks_for(model, name))
    return {"task_evaluations": [chain.evaluate_task(plan, model, task, "zeroshot", plan.seeds[0]) for task in members]}


@view(version=1, files=("bundle.json", "README.md"))
def bundle(plan: Plan, model: str, name: str) -> Artifacts:
    """The benchmark's models as the files of a bundle."""
    members = plan.members(plan.tasks_for(model, name))
    return {"bundle": [chain.bundle_archive(plan, model, members, bundled_row(plan.params), plan.seeds[0])]}


def field_methods(plan: Plan, model: str) -> list[str]:
    """Every method whose inputs a model has, and those with options in params.yaml.

    Merges that learn take long: they are there if params.yaml names them.
    """
    learning = methods.needing(LEARNED)
    names = [name for name in methods.names() if name not in learning or name in plan.method_names]
    names += [name for name in plan.method_names if name not in methods.names()]
    able = STAGES.keys() - (STATISTICS.keys() - statistics_of(plan.model(model)))
    return [name for name in names if methods.stages_behind(methods.get(name)) <= able]


def _field_rows(plan: Plan, model: str, benchmark: str) -> dict[str, Any]:
    return _shown(plan, benchmark, _rows_of(plan, benchmark, field_methods(plan, model)))


def _field(plan: Plan, model: str, name: str, seeds: Sequence[int]) -> Artifacts:
    rows = _rows_of(plan, name, field_methods(plan, model))
    return _of_seeds(seeds, lambda seed: _evaluations(plan, model, name, seed, rows))


@view(
    version=5,
    files=("field.csv", "field.md", "field.tex"),
    own_folder=False,
    provenance=f"field.{PROVENANCE}",
    params=_field_rows,
    any_tasks=True,
)
def field(plan: Plan, model: str, name: str) -> Artifacts:
    """field.csv, the long table of every method, beside its published numbers."""
    return _field(plan, model, name, plan.seeds[:1])


@view(version=2, files=("table.csv", "table.md", "per_seed.csv"), seeds="all", params=_field_rows, any_tasks=True)
def field_seeds(plan: Plan, model: str, name: str) -> Artifacts:
    """The tables over all fine-tuning seeds, of every method."""
    return _field(plan, model, name, plan.seeds)


def _merges(plan: Plan) -> list[str]:
    """The rows that merge task vectors into one model."""
    rows = [methods.get(name) for name in plan.method_names]
    return [row.name for row in rows if row.section == "merging" and not row.looks_at_one_task]


@view(
    version=1,
    files=("held_out.csv", "held_out.md"),
    own_folder=False,
    provenance=f"held_out.{PROVENANCE}",
    params=lambda plan, model, benchmark: _shown(plan, benchmark, ["zeroshot", *_merges(plan)]),
    least_tasks=2,
)
def held_out(plan: Plan, model: str, name: str) -> Artifacts:
    """held_out.csv: each task in turn under every merge of the others, beside the zero-shot and fine-tuned models."""
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    left = {task: tuple(other for other in members if other != task) for task in members}
    return {
        "task_evaluations": [
            chain.evaluate_task(plan, model, task, row, seed) for row in ("fine_tuned", "zeroshot") for task in members
        ],
        "evaluations": [
            chain.evaluate_unseen(plan, model, others, (task,), row, seed)
            for row in _merges(plan)
            for task, others in left.items()
        ],
    }
