"""Evaluate one method on a set of tasks: its whole grid on validation data, the choice, and one reading of the test."""

from collections.abc import Iterator

from job import Job, main
from model_io import load_model, load_task, new_evaluator, say
from results_io import task_origins
from tallmasks import methods
from tallmasks.evaluation.choice import choose_coefficient, choose_per_task
from tallmasks.evaluation.counting import Evaluator, Update, unpack_mask
from tallmasks.evaluation.records import SPLITS, Evaluation, read_evaluation
from tallmasks.masks.bundles import open_mask_bundle
from tallmasks.masks.consensus import open_agreement
from tallmasks.methods import Method
from tallmasks.models.imports import seen_validation
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector
from tallmasks.vectors.task_vectors import open_task_vector


class Updates:
    """The updates of one method, computed from the store files that its function asks for, where the model is."""

    def __init__(self, job: Job, method: Method, evaluator: Evaluator) -> None:
        self._method, self._evaluator = method, evaluator
        self._tasks = job.params["tasks"]
        self._shared: dict[str, object] = {"pretrained": evaluator.model.pretrained_flat()}
        if "multi_task_vector" in job.inputs:
            merged = open_multi_task_vector(job.input("multi_task_vector"))
            self._shared["multi_task_vector"] = evaluator.place(merged)
        if "agreement" in job.inputs:
            self._shared["agreement"] = evaluator.place(open_agreement(job.input("agreement")))
        self._task_vectors = [open_task_vector(path) for path in job.inputs.get("task_vectors", ())]
        self._bundle = open_mask_bundle(job.input("mask_bundle")) if "mask_bundle" in job.inputs else None

    def _update(self, **more: object) -> Update:
        return self._method(**self._shared, **more)

    def _mask(self, index: int, value: float) -> object:
        assert self._bundle is not None
        packed = self._bundle.packed_mask(self._tasks[index], value)
        return unpack_mask(packed, self._bundle.layout.size, self._evaluator.model.device)

    def of_benchmark(self) -> Update:
        """The one update of a method that gives one model."""
        return self._update()

    def of_task(self, index: int) -> Iterator[Update]:
        """The updates of one task: for every mask lambda of the grid, or the only one."""
        more: dict[str, object] = {}
        if self._task_vectors:
            more["task_vector"] = self._evaluator.place(self._task_vectors[index].flat)
            if self._method.keep:
                more["threshold"] = self._method.threshold(self._task_vectors[index], len(self._tasks))
        if self._bundle is None:
            yield self._update(**more)
        else:
            for value in self._bundle.lambdas:
                yield self._update(mask=self._mask(index, value), **more)

    def of_task_at(self, index: int, chosen: int) -> Update:
        """The update of one task at one place of the grid."""
        assert self._bundle is not None
        return self._update(mask=self._mask(index, self._bundle.lambdas[chosen]))


def run(job: Job) -> None:
    method, tasks = methods.get(job.params["method"]), job.params["tasks"]
    model = load_model(job)
    data = [
        load_task(task, head, dict(zip(SPLITS, splits, strict=True)))
        for task, head, *splits in zip(
            tasks, job.inputs["heads"], *(job.inputs[split] for split in SPLITS), strict=True
        )
    ]
    evaluator = new_evaluator(job, model, data)
    updates = Updates(job, method, evaluator)
    result = EVALUATE[method.protocol](job, method, evaluator, updates)
    job.write_json(result.to_json())


def _fixed(job: Job, method: Method, evaluator: Evaluator, updates: Updates) -> Evaluation:
    assert method.coefficient is not None
    coefficient = method.coefficient(len(evaluator.tasks))
    update = updates.of_benchmark()
    return _evaluation(
        job,
        evaluator,
        {split: _column(evaluator.scaled(split, update, [coefficient])) for split in SPLITS},
        scaling_coefficient=coefficient,
    )


def _scaled(job: Job, method: Method, evaluator: Evaluator, updates: Updates) -> Evaluation:
    grid, update = job.params["grid"], updates.of_benchmark()
    totals = evaluator.totals("validation")
    curve = evaluator.scaled("validation", update, grid)
    chosen = choose_coefficient(curve, totals, _finetuned_validation(job), job.params["tasks"])
    say(f"chosen on validation data: scaling coefficient {grid[chosen]}")
    _say_what_was_seen(job)
    return _evaluation(
        job,
        evaluator,
        {
            "validation": [row[chosen] for row in curve],
            "test": _column(evaluator.scaled("test", update, [grid[chosen]])),
        },
        scaling_coefficient=grid[chosen],
        grid=tuple(grid),
        curve=tuple(map(tuple, curve)),
    )


def _per_task(job: Job, method: Method, evaluator: Evaluator, updates: Updates) -> Evaluation:
    return _evaluation(job, evaluator, {split: _column(evaluator.own(split, updates.of_task, 1)) for split in SPLITS})


def _masked(job: Job, method: Method, evaluator: Evaluator, updates: Updates) -> Evaluation:
    grid = job.params["grid"]
    curve = evaluator.own("validation", updates.of_task, len(grid))
    chosen = choose_per_task(curve)
    say(f"chosen on validation data: mask lambdas {[grid[index] for index in chosen]}")
    _say_what_was_seen(job)
    test = evaluator.own("test", lambda index: iter([updates.of_task_at(index, chosen[index])]), 1)
    return _evaluation(
        job,
        evaluator,
        {"validation": [row[place] for row, place in zip(curve, chosen, strict=True)], "test": _column(test)},
        mask_lambda=tuple(grid[index] for index in chosen),
        grid=tuple(grid),
        curve=tuple(map(tuple, curve)),
    )


EVALUATE = {"fixed": _fixed, "scaled": _scaled, "per_task": _per_task, "masked": _masked}
"""By protocol; `tallmasks.methods` says what each means."""


def _say_what_was_seen(job: Job) -> None:
    """Into the log, that the checkpoints of others were fine-tuned on what the choice is made on."""
    if seen := seen_validation(task_origins(job.inputs["fine_tuned"])):
        say(f"note: {seen}")


def _evaluation(job: Job, evaluator: Evaluator, correct: dict[str, list[int]], **chosen: object) -> Evaluation:
    return Evaluation(
        method=job.params["method"],
        tasks=tuple(job.params["tasks"]),
        total={split: evaluator.totals(split) for split in SPLITS},
        correct=correct,
        **chosen,  # type: ignore[arg-type]
    )


def _column(counts: list[list[int]]) -> list[int]:
    return [row[0] for row in counts]


def _finetuned_validation(job: Job) -> list[float]:
    """Validation accuracy of each task's fine-tuned model, in the order of the tasks."""
    found = map(read_evaluation, job.inputs["fine_tuned"])
    return [float(evaluation.accuracy("validation")[0]) for evaluation in found]


if __name__ == "__main__":
    main(run)
