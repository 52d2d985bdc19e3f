"""Tasks with fractional scores, and models that score several weight sets in one pass."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import ROOT
from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.evaluation.method_evaluation import InMemory, Tuner, evaluate, evaluate_chosen
from reproduction.evaluation.records import Evaluation, read_joined
from reproduction.models.prefetching import prefetched
from reproduction.results.tables import interval_table, per_task_table
from tallmasks import methods
from tallmasks.io.tensor_files import Layout, load_state, write_tensors
from tallmasks.vectors.task_vectors import TaskVector
from toys.numbers_toy import Linear, LinearModel, Numbers


class HalfPoints(LinearModel):
    """The toy, where a near miss counts half for a task with odd answers."""

    def count_right(self, batch: Numbers) -> Any:
        best = self._scores(batch).topk(2).indices
        if bool((batch.answers % 2 == 0).all()):
            return (best[:, 0] == batch.answers).sum()
        first, second = (best == batch.answers[:, None]).double().unbind(dim=1)
        return (first + 0.5 * second).sum()


class Sorted(HalfPoints):
    """The same, with another order of the examples and other batch sizes."""

    def batches(self, examples: Numbers, batch_size: int) -> Iterator[Numbers]:
        order = np.argsort(examples.numbers[:, 0])
        for some in np.array_split(order, 5):
            yield self.prepare(examples[some])


class Together(HalfPoints):
    """The same, with one pass for all weight sets."""

    passes = 0

    def count_right_of(self, batch: Numbers, sets: list[torch.Tensor]) -> torch.Tensor:
        self.passes += 1
        counts = []
        for weights in sets:
            own = self.use(weights)
            counts.append(self.count_right(batch))
            self.use(own)
        return torch.stack(counts)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy") / "weights.safetensors"
    draw = np.random.default_rng(0)
    write_tensors(path, {"bias": np.zeros(4, np.float32), "weight": draw.normal(0, 1, (4, 8)).astype(np.float32)}, {})
    return path


def tasks() -> list[TaskData]:
    """One task with whole counts, and one with fractional scores."""
    draw = np.random.default_rng(2)
    numbers = draw.normal(size=(42, 8)).astype(np.float32)
    found = []
    for name, answers, count in (("counted", [0, 2], 42), ("scored", [1, 3], 41)):
        labels = {split: draw.choice(np.array(answers, np.int64), count) for split in ("validation", "test")}
        found.append(TaskData(name, {split: Numbers(numbers[:count], own) for split, own in labels.items()}))
    return found


UPDATE = np.random.default_rng(2).normal(size=36).astype(np.float32)
ALPHAS = [0.0, 0.3, 0.6, 1.0]


def test_scores_are_not_rounded(weights: Path) -> None:
    """Half points would be lost, or counts would become fractions."""
    counted, scored = Evaluator(HalfPoints(weights), tasks(), 7).scaled("test", UPDATE, ALPHAS)
    assert all(type(count) is int for count in counted)
    assert all(type(score) is float and 0 <= score <= 41 and 2 * score == int(2 * score) for score in scored)
    assert any(score != int(score) for score in scored)


def test_scores_do_not_depend_on_the_batches(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's accuracy would depend on how its examples are batched."""
    expected = Evaluator(HalfPoints(weights), tasks(), 7).scaled("test", UPDATE, ALPHAS)
    assert Evaluator(Sorted(weights), tasks(), 7).scaled("test", UPDATE, ALPHAS) == expected
    monkeypatch.setattr(
        "reproduction.evaluation.evaluator.prefetched",
        lambda prepared, device: prefetched(prepared, torch.device("cuda")),
    )
    together = Together(weights)
    monkeypatch.setattr("reproduction.evaluation.evaluator.CPU_BYTES", 3 * together.initial().nbytes)
    assert Evaluator(together, tasks(), 7).scaled("test", UPDATE, ALPHAS) == expected
    assert together.passes == 2 * 2 * 6  # tasks, rounds of weight sets, batches
    assert torch.equal(together.flat, together.initial()), "the model is unchanged"


def test_fractional_scores_are_used_for_choices_and_written(weights: Path) -> None:
    """A task with fractional scores could have no coefficient, no lambda and no line in a table."""
    chosen = Tuner(Evaluator(HalfPoints(weights), tasks()), ALPHAS, [1.0, 1.0])("task_arithmetic", UPDATE)
    means = np.asarray(chosen.curve).sum(axis=0)
    assert chosen.scaling_coefficient == ALPHAS[int(np.argmax(means))]
    again = Evaluation.from_json(json.loads(json.dumps(chosen.to_json())))
    assert again == chosen and type(again.correct["test"][0]) is int and type(again.correct["test"][1]) is float
    assert set(per_task_table([again], again)["normalized_accuracy"]) == {100.0}
    table = interval_table([again])
    bounds = table.groupby("task")[["accuracy_low", "accuracy_high"]].count()
    assert bounds.loc["counted"].tolist() == [2, 2] and bounds.loc["scored"].tolist() == [0, 0]
    lines = table.to_csv(index=False).splitlines()
    assert f",{again.correct['test'][0]},42," in lines[-2] and f",{again.correct['test'][1]},41," in lines[-1]
    assert lines[-1].endswith(",,")


def test_known_zero_shot_scores_are_those_of_alpha_0(weights: Path) -> None:
    """A table's zero-shot row and a merge with alpha = 0 would have different accuracies, or each merge evaluate it."""
    evaluator, known = Evaluator(HalfPoints(weights), tasks()), {"validation": [41, 40.5], "test": [7, 8.5]}
    plain, found = (
        Tuner(evaluator, ALPHAS, [1.0, 1.0], zero_shot)("task_arithmetic", UPDATE) for zero_shot in (None, known)
    )
    assert (found.scaling_coefficient, found.correct) == (0.0, known)
    assert [row[1:] for row in found.curve] == [row[1:] for row in plain.curve]


class Marked(HalfPoints):
    """The same, with a further score for near misses."""

    def further_scores(self, examples: Numbers, batch_size: int) -> dict[str, float]:
        if (examples.answers % 2 == 0).all():
            return {}
        batch = self.prepare(examples)
        best = self._scores(batch).topk(2).indices == batch.answers[:, None]
        return {"first": float(best[:, 0].sum()), "first_two": float(best.sum())}


class Family(Linear):
    def load(self, spec: Any, weights: Path, precision: str = "float32", device: Any = None) -> Marked:
        return Marked(weights)


FAMILY = Family()


@pytest.mark.parametrize("name", ["zeroshot", "fine_tuned"])
def test_a_row_is_the_same_with_one_job_per_task(
    name: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fine-tuned models, by which the others are normalised, would be evaluated in another way than these."""
    monkeypatch.syspath_prepend(ROOT / "workflow" / "scripts")
    script, job = (importlib.import_module(module) for module in ("evaluate_task", "job"))
    draw, initial, vectors = np.random.default_rng(3), load_state(weights), []
    for task in tasks():
        for split, examples in task.splits.items():
            write_tensors(tmp_path / split, {"numbers": examples.numbers, "answers": examples.answers}, {})
        moved = {key: draw.normal(size=array.shape).astype(np.float32) for key, array in initial.items()}
        checkpoint = tmp_path / "checkpoint.safetensors"
        write_tensors(checkpoint, {key: initial[key] + moved[key] for key in initial}, {})
        flat = np.concatenate([moved[key].ravel() for key in LinearModel.trainable])
        vectors.append(TaskVector(flat, Layout(("w",), ((36,),)), {}))
        files = {
            "pretrained": [weights],
            "checkpoint": [checkpoint],
            **{split: [tmp_path / split] for split in task.splits},
        }
        params = {"family": __name__, "method": name, "task": task.name, "evaluation": {"batch_size": 7}}
        script.run(job.Job({"params": params}, files, {"artifact": tmp_path / f"{task.name}.json"}))
    method, evaluator = methods.get(name), Evaluator(Marked(weights), tasks())
    memory = InMemory(vectors, evaluator.model.initial().numpy(), (), lambda method: ())
    row = evaluate(method, memory.of(method), evaluator, None, ())
    assert read_joined(tmp_path / f"{task.name}.json" for task in tasks()) == row
    assert row.further["first"][1]


LAMBDAS = (0.2, 0.5, 0.8)
ROWS = (
    "zeroshot", "weight_averaging", "task_arithmetic", "lines", "tall_mask_task_arithmetic",
    "consensus_task_arithmetic", "fine_tuned",
)  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_further_scores_are_those_of_the_row(weights: Path, name: str) -> None:
    """A task's F1 would be that of another coefficient, lambda or task than its exact match."""
    method, evaluator = methods.get(name), Evaluator(Marked(weights), tasks())
    draw, layout = np.random.default_rng(131), Layout(("block.0.w", "block.1.w"), ((4,), (32,)))
    vectors = [TaskVector(draw.normal(size=36).astype(np.float32), layout, {}) for _ in evaluator.tasks]
    memory = InMemory(vectors, evaluator.model.initial().numpy(), LAMBDAS, lambda method: LAMBDAS[:2])
    grid = [0.1, 0.5, 0.9]
    row = evaluate(method, memory.of(method), evaluator, Tuner(evaluator, grid, [1.0, 1.0]), LAMBDAS)
    assert torch.equal(evaluator.model.flat, evaluator.model.initial()), "the model is unchanged"
    if row.grid:
        chosen = row.mask_lambda[1] if row.mask_lambda else row.scaling_coefficient
        assert chosen != row.grid[0] and len(set(row.curve[1])) == len(row.grid), "another seed for this test"
    rows = [row]
    if row.scaling_coefficient is not None:  # as on tasks that are not merged
        rows.append(evaluate_chosen(method, memory.of(method), evaluator, row.scaling_coefficient))
    for one in rows:
        assert one.correct == row.correct and one.further["first"][0] is None
        first, both = (one.further[mark][1] for mark in ("first", "first_two"))
        assert first is not None and both is not None and (first + both) / 2 == row.correct["test"][1]


def test_further_scores_are_written(weights: Path) -> None:
    """A table would show a task's F1 in the line of another task, or existing evaluations would change."""
    chosen = Tuner(Evaluator(Marked(weights), tasks()), ALPHAS, [1.0, 1.0])("task_arithmetic", UPDATE)
    again = Evaluation.from_json(json.loads(json.dumps(chosen.to_json()))).in_order(("scored", "counted"))
    both = again.further["first_two"][0]
    assert both and again.further["first_two"][1] is None
    for one in (chosen, again):
        table = per_task_table([one], one).set_index(["task", "split"])
        assert table["first_two"].dropna().to_dict() == {("scored", "test"): round(100 * both / 41, 4)}
    plain = Tuner(Evaluator(HalfPoints(weights), tasks()), ALPHAS, [1.0, 1.0])("task_arithmetic", UPDATE)
    assert "further" not in plain.to_json()
