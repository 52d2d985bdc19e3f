"""The views of a benchmark: sets of results files, with the artifacts that they are written from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from reproduction.artifacts.folders import PROVENANCE
from reproduction.models.checkpoint_sources import FINETUNE, source_of
from reproduction.models.families import STATISTICS, statistics_of, trains_heads
from reproduction.plan import chain
from reproduction.plan.chain import Seed, Tasks
from reproduction.plan.node import Declaration, Node, Stage, results
from reproduction.plan.params import bundled_row
from reproduction.plan.settings import Plan
from reproduction.training.controlled import Controlled
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.methods import Method
from tallmasks.methods.merges import LEARNED

Artifacts = dict[str, list[Node]]
WrittenFrom = Callable[[Plan, str, str], Artifacts]
FurtherParams = Callable[[Plan, str, str], dict[str, Any]]

VIEWS: dict[str, Stage[Any]] = {}


class NotOfThisBenchmark(TallmasksError):
    """A view does not exist for a benchmark."""


def view(
    *,
    version: int,
    files: Sequence[str],
    params: FurtherParams = lambda plan, model, benchmark: {},
    seeds: Literal["none", "first", "all"] = "first",
    subfolder: bool = True,
    provenance: str = PROVENANCE,
    any_tasks: bool = False,
    least_tasks: int = 1,
) -> Callable[[WrittenFrom], WrittenFrom]:
    """Decorator: declare a view, named after its function ``(plan, model, benchmark) -> artifacts by role``.

    Args:
        files: the files that it writes for every benchmark; some benchmarks have more.
        params: ``(plan, model, benchmark) -> parameters for the recipe``.
        seeds: the fine-tuning seeds that it shows.
        subfolder: write to a folder below the benchmark's folder, named after the view.
        provenance: the file with the recipe and the digests of the other files.
        any_tasks: allow benchmarks that evaluate other tasks than they merge.
        least_tasks: the minimum number of tasks.
    """

    def register(artifacts: WrittenFrom) -> WrittenFrom:
        name = getattr(artifacts, "__name__")  # noqa: B009

        def declare(plan: Plan, model: str, benchmark: str) -> Declaration:
            tasks = plan.tasks_for(model, benchmark)
            shown_seeds = {"none": (), "first": plan.seeds[:1], "all": plan.seeds}[seeds]
            if reason := _reason_against(plan, model, benchmark, len(shown_seeds)):
                raise NotOfThisBenchmark(f"results/{model}/{benchmark}/{name}: {reason}")
            settings = {
                "model": model,
                "benchmark": benchmark,
                "tasks": list(tasks),
                **params(plan, model, benchmark),
                "seeds": list(shown_seeds),
                **plan.architecture(model),
            }
            return Declaration(
                benchmark, settings, artifacts(plan, model, benchmark), chain.pretrained_source(plan, model)
            )

        def _reason_against(plan: Plan, model: str, benchmark: str, seed_count: int) -> str | None:
            tasks, sources = plan.benchmark(model, benchmark), plan.model(model).get("checkpoints", FINETUNE)
            if seed_count > 1 and any(source_of(sources, task) != FINETUNE for task in tasks.evaluate):
                return f"imported checkpoints have no seeds; it needs `checkpoints: {FINETUNE}` in params.yaml"
            if tasks.unseen and not any_tasks:
                return (
                    "it shows a model or mask of each evaluated task, but this benchmark evaluates tasks that it does "
                    "not merge; use a benchmark that is a list of tasks"
                )
            if len(tasks.merge) < least_tasks:
                return f"it needs {least_tasks} tasks, but this benchmark has {len(tasks.merge)}; add tasks"
            return None

        declare.__name__ = name
        folder = f"{{name}}/{name}" if subfolder else "{name}"
        VIEWS[name] = results(version=version, files=[f"{folder}/{file}" for file in (*files, provenance)])(declare)
        return artifacts

    return register


def _rows_of(plan: Plan, model: str, benchmark: str, names: Sequence[str]) -> tuple[str, ...]:
    """The methods of `names` that have a model for every task of the benchmark."""
    rows, unseen = map(methods.get, names), plan.benchmark(model, benchmark).unseen
    return tuple(row.name for row in rows if not unseen or row.looks_at_one_task or row.section == "merging")


def _params_of_rows(plan: Plan, model: str, benchmark: str, names: Sequence[str]) -> dict[str, Any]:
    tasks = plan.benchmark(model, benchmark)
    merged = {"merged": list(tasks.merge)} if tasks.unseen else {}
    return {"methods": list(names), "table_digests": methods.table_digests(names), **merged}


def _rows(plan: Plan, model: str, benchmark: str) -> dict[str, Any]:
    rows = _rows_of(plan, model, benchmark, plan.method_names)
    if not rows:
        raise TallmasksError(
            f"results/{model}/{benchmark}: this benchmark evaluates tasks that it does not merge, but no row of "
            f"`methods` in params.yaml ({', '.join(plan.method_names)}) has a model for them; add a merge, such as "
            "task_arithmetic"
        )
    agreements = [methods.masking(merge).name for merge in agreeing_merges(plan, model, benchmark)]
    return {**_params_of_rows(plan, model, benchmark, rows), "agreements": agreements}


def agreeing_merges(plan: Plan, model: str, benchmark: str) -> list[str]:
    """The merges that need the agreement of their tasks' masks; none if the merged tasks are not evaluated."""
    rows = [] if plan.benchmark(model, benchmark).unseen else map(methods.get, plan.method_names)
    return list(dict.fromkeys(row.merge for row in rows if row.merge and "agreement" in row.needs))


def results_of(plan: Plan, model: str, benchmark: str, seed: Seed) -> Artifacts:
    """The artifacts for the tables of a benchmark, by role."""
    tasks, merges = plan.members(plan.tasks_for(model, benchmark)), agreeing_merges(plan, model, benchmark)
    return {
        **_evaluations(plan, model, benchmark, seed, _rows_of(plan, model, benchmark, plan.method_names)),
        "agreements": [chain.consensus(plan, model, tasks, merge, seed) for merge in merges],
        "merged": [chain.merge(plan, model, tasks, merge, seed) for merge in merges],
    }


def _evaluations(plan: Plan, model: str, benchmark: str, seed: Seed, names: Sequence[str]) -> Artifacts:
    """The evaluations of some methods and of the fine-tuned models, by role."""
    tasks, merged = plan.members(plan.tasks_for(model, benchmark)), plan.members(plan.benchmark(model, benchmark).merge)
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
    version=12,
    files=("table.csv", "table.md", "per_task.csv", "intervals.csv", "selection.json", "agreement.csv", "metrics.json"),
    subfolder=False,
    params=_rows,
    any_tasks=True,
)
def tables(plan: Plan, model: str, name: str) -> Artifacts:
    """The tables of a benchmark."""
    return _of_seeds(plan.seeds[:1], lambda seed: results_of(plan, model, name, seed))


@view(version=7, files=("table.csv", "table.md"), seeds="all", params=_rows, any_tasks=True)
def seeds(plan: Plan, model: str, name: str) -> Artifacts:
    """The tables over all fine-tuning seeds."""
    return _of_seeds(plan.seeds, lambda seed: results_of(plan, model, name, seed))


@view(
    version=1,
    files=("zeroshot.csv",),
    seeds="none",
    subfolder=False,
    provenance=f"zeroshot.{PROVENANCE}",
    any_tasks=True,
)
def zeroshot(plan: Plan, model: str, name: str) -> Artifacts:
    """zeroshot.csv, which needs no fine-tuning."""
    members = plan.members(plan.tasks_for(model, name))
    return {"task_evaluations": [chain.evaluate_task(plan, model, task, "zeroshot", plan.seeds[0]) for task in members]}


@view(version=1, files=("bundle.json", "README.md"))
def bundle(plan: Plan, model: str, name: str) -> Artifacts:
    """The bundle of the benchmark's models."""
    members = plan.members(plan.tasks_for(model, name))
    return {"bundle": [chain.bundle_archive(plan, model, members, bundled_row(plan.params), plan.seeds[0])]}


def field_methods(plan: Plan, model: str) -> list[str]:
    """All methods for which the model has the inputs, and the rows of params.yaml with options.

    Merges that learn are slow and are included only if params.yaml names them.
    """
    learning = methods.needing(LEARNED)
    names = [name for name in methods.names() if name not in learning or name in plan.method_names]
    names += [name for name in plan.method_names if name not in methods.names()]
    unsupported = STATISTICS.keys() - set(statistics_of(plan.model(model)))
    return [name for name in names if methods.statistics_behind(methods.get(name)) not in unsupported]


def _field_rows(plan: Plan, model: str, benchmark: str) -> dict[str, Any]:
    return _params_of_rows(plan, model, benchmark, _rows_of(plan, model, benchmark, field_methods(plan, model)))


def _field(plan: Plan, model: str, name: str, seeds: Sequence[int]) -> Artifacts:
    rows = _rows_of(plan, model, name, field_methods(plan, model))
    return _of_seeds(seeds, lambda seed: _evaluations(plan, model, name, seed, rows))


@view(
    version=9,
    files=("field.csv", "field.md", "field.tex"),
    subfolder=False,
    provenance=f"field.{PROVENANCE}",
    params=_field_rows,
    any_tasks=True,
)
def field(plan: Plan, model: str, name: str) -> Artifacts:
    """field.csv, the table of all methods, and a comparison with published numbers."""
    return _field(plan, model, name, plan.seeds[:1])


@view(version=4, files=("table.csv", "table.md", "per_seed.csv"), seeds="all", params=_field_rows, any_tasks=True)
def field_seeds(plan: Plan, model: str, name: str) -> Artifacts:
    """The tables of all methods over all fine-tuning seeds."""
    return _field(plan, model, name, plan.seeds)


def _merges(plan: Plan) -> list[str]:
    rows = [methods.get(name) for name in plan.method_names]
    return [row.name for row in rows if row.section == "merging" and not row.looks_at_one_task]


@view(
    version=1,
    files=("held_out.csv", "held_out.md"),
    subfolder=False,
    provenance=f"held_out.{PROVENANCE}",
    params=lambda plan, model, benchmark: _params_of_rows(plan, model, benchmark, ["zeroshot", *_merges(plan)]),
    least_tasks=2,
)
def held_out(plan: Plan, model: str, name: str) -> Artifacts:
    """held_out.csv: each task under every merge of the other tasks, next to the zero-shot and fine-tuned models."""
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    others_of = {task: tuple(other for other in members if other != task) for task in members}
    return {
        "task_evaluations": [
            chain.evaluate_task(plan, model, task, row, seed) for row in ("fine_tuned", "zeroshot") for task in members
        ],
        "evaluations": [
            chain.evaluate_unseen(plan, model, others, (task,), row, seed)
            for row in _merges(plan)
            for task, others in others_of.items()
        ],
    }


# -- views that only the paper's figures need ------------------------------------------------------------------------

ILLUSTRATED = 4  # tasks in figure 1


def _row_of_each_merge(of_merge: Callable[[str], Method]) -> FurtherParams:
    """Parameters with the row of every merge that has consensus masks."""
    return lambda plan, model, benchmark: {
        "methods": [of_merge(merge).name for merge in agreeing_merges(plan, model, benchmark)]
    }


def _fine_tuned(plan: Plan, model: str, members: Tasks, seed: Seed) -> list[Node]:
    return [chain.evaluate_task(plan, model, task, "fine_tuned", seed) for task in members]


@view(version=2, files=("density.csv", "tensors.csv", "overlap.csv"), params=_row_of_each_merge(methods.masking))
def mask_statistics(plan: Plan, model: str, name: str) -> Artifacts:
    """Density and overlap of the selected masks."""
    members, seed, merges = plan.members(plan.tasks_for(model, name)), plan.seeds[0], agreeing_merges(plan, model, name)
    return {
        "selections": [chain.evaluate(plan, model, members, methods.masking(merge).name, seed) for merge in merges],
        "mask_bundles": [chain.mask(plan, model, members, merge, seed) for merge in merges],
        "merged": [chain.merge(plan, model, members, merge, seed) for merge in merges],
    }


@view(version=3, files=("thresholds.csv",), params=_row_of_each_merge(methods.consensus))
def thresholds(plan: Plan, model: str, name: str) -> Artifacts:
    """Consensus merging at every threshold k (figure 6).  A k without a row in tables can use fewer images."""
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]

    def at_threshold(consensus: methods.Method, k: int) -> Node:
        for row in methods.rows_on(str(consensus.merge), lambda row: row.usage == consensus.usage):
            if (0 if row.is_merge else row.consensus_threshold) == k:
                return chain.evaluate(plan, model, members, row.name, seed)
        row_at_k = methods.spec_of({consensus.name: {"k": k}})
        return chain.evaluate(plan, model, members, row_at_k, seed, sweep="thresholds")

    return {
        "fine_tuned": _fine_tuned(plan, model, members, seed),
        **{
            row.name: [at_threshold(row, k) for k in range(len(members) + 2)]
            for row in map(methods.consensus, agreeing_merges(plan, model, name))
        },
    }


@view(version=2, files=("controlled.csv",))
def controlled(plan: Plan, model: str, name: str) -> Artifacts:
    """Task arithmetic with and without interference, weight by weight (table 1)."""
    if trains_heads(plan.model(model)):
        raise NotOfThisBenchmark(
            f"results/{model}/{name}/controlled: each task trains its own part of the weights, so heads must be "
            "frozen: it needs `heads: class_names`"
        )
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    partition = Controlled(seed, members)
    return {
        "standard": [
            *_fine_tuned(plan, model, members, seed),
            chain.evaluate(plan, model, members, "task_arithmetic", seed),
        ],
        "controlled": [
            *_fine_tuned(plan, model, members, partition),
            chain.evaluate(plan, model, members, "task_arithmetic", partition),
        ],
    }


@view(
    version=4,
    files=("accuracy.csv", "orders.json"),
    params=lambda plan, model, benchmark: {"orders": list(plan.subset_orders)},
)
def subsets(plan: Plan, model: str, name: str) -> Artifacts:
    """Accuracy and storage on the first n tasks of each order, for every n (figure 5)."""
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    return {
        "zero_shot": [chain.evaluate_task(plan, model, task, "zeroshot", seed) for task in members],
        "fine_tuned": _fine_tuned(plan, model, members, seed),
        **{
            order: [
                chain.evaluate_first_tasks(plan, model, members, order, n, seed) for n in range(1, len(members) + 1)
            ]
            for order in plan.subset_orders
        },
    }


@view(
    version=2,
    files=("weights.csv",),
    params=lambda plan, model, benchmark: {"grid": list(plan.grids(model)["mask_lambda"])},
)
def illustration(plan: Plan, model: str, name: str) -> Artifacts:
    """A block of one matrix, from task vectors to masks (figure 1)."""
    tasks, seed = plan.tasks_for(model, name), plan.seeds[0]
    return {"task_vectors": [chain.task_vector(plan, model, task, seed) for task in tasks[:ILLUSTRATED]]}
