"""Validation, dropout and schedules in the training loop, with a model family from outside the package."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reproduction.models import prefetching
from reproduction.training import finetuning
from reproduction.training.finetuning import FinetuneConfig, FinetuneResult, Progress, finetune
from reproduction.training.unfinished import TrainingState
from resumption import ends_as_undisturbed
from tallmasks.io.tensor_files import write_tensors
from toys.numbers_toy import LinearModel, Numbers


class DroppingModel(LinearModel):
    """The toy with dropout on its inputs."""

    dropping = False

    def train(self, on: bool) -> None:
        self.dropping = on

    def batches(self, examples: Numbers, batch_size: int) -> Any:
        assert not self.dropping, "validation would use dropout"
        return super().batches(examples, batch_size)

    def loss(self, batch: Numbers) -> Any:
        dropped = torch.nn.functional.dropout(batch.numbers, 0.5, training=self.dropping)
        return super().loss(Numbers(dropped, batch.answers))


def model(tmp_path: Path) -> DroppingModel:
    path = tmp_path / "weights.safetensors"
    if not path.exists():
        draw = np.random.default_rng(0)
        weights = {"bias": np.zeros(4, np.float32), "weight": draw.normal(0, 0.1, (4, 8)).astype(np.float32)}
        write_tensors(path, weights, {})
    return DroppingModel(path)


def some(split: str, count: int) -> Numbers:
    """Points and their directions; one in four is wrong, so that more steps are not always better."""
    draw = np.random.default_rng(len(split))
    numbers = draw.normal(size=(count, 8)).astype(np.float32)
    answers = np.where(draw.random(count) < 0.25, draw.integers(0, 4, count), np.argmax(numbers[:, :4], axis=1))
    return Numbers(numbers, answers.astype(np.int64))


TRAIN, VALIDATION = some("train", 60), some("validation", 40)


def config(**changes: Any) -> FinetuneConfig:
    settings: dict[str, Any] = {
        "iterations": 60, "batch_size": 10, "learning_rate": 0.3, "weight_decay": 0.0, "epsilon": 1e-8,
        "schedule": "constant", "seed": 0, "validate_every": 6, "micro_batch_size": 3,
    }  # fmt: skip
    return FinetuneConfig(**{**settings, **changes})


def run(
    toy: DroppingModel,
    settings: FinetuneConfig,
    state: TrainingState | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> FinetuneResult:
    validation = VALIDATION if settings.validate_every else None
    return finetune(toy, "north", TRAIN, settings, report, state, validation=validation)


def accuracy(toy: DroppingModel) -> float:
    return int(toy.count_right(toy.prepare(VALIDATION))) / len(VALIDATION)


def test_the_checkpoint_is_the_best_of_those_validated(tmp_path: Path) -> None:
    """The weights of the last step, which overfit, would be merged instead of the best ones."""
    toy = model(tmp_path)
    result = run(toy, config())
    assert [step for step, _ in result.validation] == list(range(6, 61, 6))
    scores = dict(result.validation)
    assert scores[result.step] == max(scores.values()) > scores[60], "another seed for this test"
    assert all(score < max(scores.values()) for step, score in scores.items() if step < result.step)
    assert accuracy(toy) == scores[result.step]
    whole = run(model(tmp_path), config(iterations=result.step, validate_every=None)).checkpoint
    for name, tensor in result.checkpoint.items():
        np.testing.assert_array_equal(tensor, whole[name])


@pytest.mark.parametrize("patience", [1, 3])
def test_a_training_ends_after_patience_without_a_better_score(tmp_path: Path, patience: int) -> None:
    """A training would continue for hours after its best step, or end too early."""
    every = run(model(tmp_path), config(iterations=240)).validation
    best, behind, expected = -1.0, 0, []
    for row in every:
        expected.append(row)
        best, behind = (row[1], 0) if row[1] > best else (best, behind + 1)
        if behind == patience:
            break
    assert len(expected) < len(every)
    reports: list[Progress] = []
    result = run(model(tmp_path), config(iterations=240, patience=patience), report=reports.append)
    assert list(result.validation) == expected and dict(expected)[result.step] == best
    assert reports[-1].step == reports[-1].steps == expected[-1][0] == len(result.curve), "progress would never end"
    assert "validation" in str(reports[-1])
    short = run(model(tmp_path), config(iterations=20, patience=patience + 3))
    assert [step for step, _ in short.validation][-1] == 20, "the last step is always validated"


def test_a_training_depends_on_nothing_but_its_recipe(tmp_path: Path) -> None:
    """A checkpoint would depend on what the process did before, and change what it does afterwards."""
    torch.manual_seed(1)
    first = run(model(tmp_path), config(iterations=12))
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn), "the caller's random numbers are not affected"
    toy = model(tmp_path)
    assert run(toy, config(iterations=12)).curve == first.curve
    assert not toy.dropping, "evaluations would be noisy"


@pytest.mark.parametrize(
    ("kind", "examples"), [(LinearModel, TRAIN), (DroppingModel, TRAIN[np.zeros(60, int)])], ids=["order", "dropout"]
)
def test_another_seed_or_task_has_other_random_numbers(tmp_path: Path, kind: type[LinearModel], examples: Any) -> None:
    """The spread over seeds would be too small, or all tasks would see their examples in one order."""
    model(tmp_path)
    curves = {
        finetune(
            kind(tmp_path / "weights.safetensors"), task, examples, config(iterations=3, seed=seed, validate_every=None)
        ).curve
        for seed, task in ((0, "north"), (1, "north"), (0, "south"), (0, "north"))
    }
    assert len(curves) == 3


def test_the_first_step_is_that_of_adamw(tmp_path: Path) -> None:
    """Weight decay, epsilon or the largest norm of the gradient in params.yaml would have no effect."""
    model(tmp_path)
    toy, plain = (LinearModel(tmp_path / "weights.safetensors") for _ in range(2))
    plain.loss(plain.prepare(TRAIN)).backward()
    gradient = torch.cat([one.grad.ravel() for one in plain.parameters()])
    clipped = gradient * 0.05 / gradient.norm()
    assert gradient.norm() > 0.05, "another norm for this test"
    expected = plain.initial() * (1 - 0.3 * 0.1) - 0.3 * clipped / (clipped.abs() + 0.01)
    one = config(iterations=1, batch_size=60, weight_decay=0.1, epsilon=0.01, clip_norm=0.05, validate_every=None)
    finetune(toy, "north", TRAIN, one)
    torch.testing.assert_close(toy.flat, expected)


def test_a_plateau_ends_in_a_linear_decay() -> None:
    """The last step of a pretraining would have no effect, or the warm-up another peak."""
    rates = [finetuning.plateau_schedule(step, 10, 2, 0.5) for step in range(1, 11)]
    assert rates == pytest.approx([0.5, *[1.0] * 5, 0.8, 0.6, 0.4, 0.2])


def test_the_time_left_follows_from_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of minutes would announce hours, most of all after it is resumed."""
    monkeypatch.setattr(finetuning.time, "monotonic", lambda: 105.0)
    progress = finetuning.progress_at(20, 60, 8, 0.5, start=100.0, first=10)
    assert (progress.per_second, progress.seconds_left) == (16.0, 20.0)


def test_validation_does_not_change_training(tmp_path: Path) -> None:
    """The trained weights would depend on how often validation runs."""
    often, never = run(model(tmp_path), config(validate_every=1)), run(model(tmp_path), config(validate_every=None))
    assert often.curve == never.curve and never.validation == () and never.step == 60


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 3, [1 / 3, 2 / 3, *[1.0] * 7]),
        ("cosine", 0, [(1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
        ("cosine", 2, [0.5, 1.0, 0.75, 0.25]),
    ],
)
def test_a_schedule_ends_with_the_training(tmp_path: Path, schedule: str, warmup: int, expected: list[float]) -> None:
    """The last steps would have no effect, or the training would end at a high learning rate, with noisy weights."""
    settings = config(iterations=len(expected), schedule=schedule, warmup_iterations=warmup)
    rates = [rate for _, rate, _ in run(model(tmp_path), settings).curve]
    assert rates == pytest.approx([0.3 * share for share in expected])


def test_pieces_of_a_batch_count_by_their_weight(tmp_path: Path) -> None:
    """Tokens of a short sentence would count more than those of a long one, depending on the GPU's memory."""

    class Weighed(Numbers):
        @property
        def weight(self) -> float:
            return float(self.answers.sum()) + 1e-9

        def __getitem__(self, some: Any) -> Any:
            return Weighed(self.numbers[some], self.answers[some])

    class WeighedModel(LinearModel):
        def prepare(self, examples: Numbers, changes: Any = None, generator: Any = None) -> Numbers:
            found = super().prepare(examples)
            return Weighed(found.numbers, found.answers)

        def loss(self, batch: Numbers) -> Any:
            each = torch.nn.functional.cross_entropy(self._scores(batch), batch.answers, reduction="none")
            return (each * batch.answers).sum() / batch.weight

    model(tmp_path)
    found = []
    for size in (None, 3):
        toy = WeighedModel(tmp_path / "weights.safetensors")
        settings = config(validate_every=None, micro_batch_size=size, epsilon=1e-3, iterations=10)
        found.append(finetune(toy, "north", TRAIN, settings).checkpoint["weight"])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-5)


class CrampedModel(DroppingModel):
    """For more than two examples with a large value, runs out of memory every second time."""

    asked, large = 0, 1.5

    def loss(self, batch: Numbers) -> Any:
        if len(batch) > 2 and float(batch.numbers.max()) > self.large:
            self.asked += 1
            if self.asked % 2 == 0:
                raise torch.OutOfMemoryError
        return super().loss(batch)


def test_a_gpu_with_too_little_memory_halves_the_micro_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training would end after hours at the first batch of long texts, or count some examples twice."""
    model(tmp_path)
    cramped = CrampedModel(tmp_path / "weights.safetensors")
    cramped.large = 0.0
    found = run(cramped, config(micro_batch_size=4, validate_every=None, iterations=10))
    assert cramped.asked == 2 and len(capsys.readouterr().out.splitlines()) == 1, "reported once"
    expected = run(model(tmp_path), config(micro_batch_size=2, validate_every=None, iterations=10))
    assert [row[2] for row in found.curve] == [row[2] for row in expected.curve]
    for name, tensor in expected.checkpoint.items():
        np.testing.assert_array_equal(found.checkpoint[name], tensor)


def test_a_killed_training_keeps_its_micro_batch_size(tmp_path: Path) -> None:
    """After an interruption dropout would differ from a training without it."""
    model(tmp_path)
    settings, weights = config(micro_batch_size=4), tmp_path / "weights.safetensors"
    ends_as_undisturbed(lambda *watched: run(CrampedModel(weights), settings, *watched), tmp_path, stop=20)


def test_the_next_batch_is_prepared_while_this_one_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would train on other examples than a CPU, or a continued training on others than an uninterrupted one."""
    expected = run(model(tmp_path), config(iterations=24))
    threads = set[str]()

    class Preparing(DroppingModel):
        def prepare(self, *args: Any) -> Any:
            if len(args) > 1:  # for training
                threads.add(threading.current_thread().name)
            return super().prepare(*args)

    weights, settings, gpu = tmp_path / "weights.safetensors", config(iterations=24), torch.device("cuda")
    monkeypatch.setattr(finetuning, "prefetched", lambda prepared, device: prefetching.prefetched(prepared, gpu))
    found = ends_as_undisturbed(lambda *watched: run(Preparing(weights), settings, *watched), tmp_path, stop=10)
    assert found.curve == expected.curve and threads and threading.current_thread().name not in threads
