"""Computed sizes equal those of real files, for every way of storing models that has a file format."""

from pathlib import Path

import numpy as np
import pytest

from reproduction.evaluation.records import Evaluation
from reproduction.results.stored_files import StartingPoint, bundle_contents, stored_gigabits
from tallmasks.bundles.bundle_writer import new_bundle, new_coded_bundle
from tallmasks.io.tensor_files import write_tensors
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from task_bundles import coded_content

TASKS = ("b", "a", "c")
SHAPES = {"head.weight": (300, 50), "visual.bias": (7,), "visual.weight": (400, 501)}
TRAINABLE = ("visual.bias", "visual.weight")


@pytest.fixture
def pretrained(tmp_path: Path) -> Path:
    tensors = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    write_tensors(tmp_path / "theta0.safetensors", tensors | {"steps": np.arange(3)}, {"recipe": "r" * 500})
    return tmp_path / "theta0.safetensors"


def evaluation(method: str, lambdas: tuple[float, ...] | None = None) -> Evaluation:
    counts = {split: [10] * len(TASKS) for split in ("validation", "test")}
    return Evaluation(method, TASKS, total=counts, correct=counts, mask_lambda=lambdas)


def parts(bundle: Path) -> list[Path]:
    return [path for path in bundle.rglob("*") if path.suffix in {".json", ".safetensors"}]


def gigabits(*files: Path) -> float:
    return round(8 * sum(path.stat().st_size for path in files) / 1e9, 4)


def test_one_model_takes_a_file_like_the_pretrained_one(pretrained: Path) -> None:
    """A table would leave out frozen weights, such as the text encoder, that every stored file holds."""
    start = StartingPoint(open_checkpoint(pretrained), TRAINABLE)
    for method in ("zeroshot", "task_arithmetic", "consensus_ties", "iso_c"):
        assert stored_gigabits(evaluation(method), start) == gigabits(pretrained)
    assert stored_gigabits(evaluation("magnitude_pruning"), start) is None


def test_fine_tuned_models_take_a_checkpoint_each_and_what_is_frozen_once(pretrained: Path, tmp_path: Path) -> None:
    """The savings by masks would be computed from the wrong size."""
    checkpoint, values = tmp_path / "checkpoint", 4 * (7 + 400 * 501)
    write_tensors(checkpoint, {name: np.ones(SHAPES[name], np.float32) for name in TRAINABLE}, {})
    expected = round(8 * (3 * checkpoint.stat().st_size + pretrained.stat().st_size - values) / 1e9, 4)
    assert stored_gigabits(evaluation("fine_tuned"), StartingPoint(open_checkpoint(pretrained), TRAINABLE)) == expected


@pytest.mark.parametrize(
    ("method", "lambdas"), [("tall_mask_ties", (0.2, 0.35, 0.6)), ("magnitude_masking", None), ("emr", None)]
)
def test_masked_models_take_a_bundle_and_its_base(
    pretrained: Path, tmp_path: Path, method: str, lambdas: tuple[float, ...] | None
) -> None:
    """The table would have another size than the files that `tallmasks` writes."""
    start, row = StartingPoint(open_checkpoint(pretrained), TRAINABLE), evaluation(method, lambdas)
    masks = {task: np.zeros(-(-400 * 501 // 8), np.uint8) for task in TASKS}
    with new_bundle(tmp_path / "bundle", bundle_contents(row.method, row.tasks, start, row.mask_lambda)) as new:
        new.write("visual.bias", 0, np.ones(7, np.float32), {task: bits[:1] for task, bits in masks.items()})
        new.write("visual.weight", 0, np.ones(400 * 501, np.float32), masks)
    assert len(files := parts(tmp_path / "bundle")) == 2 + len(TASKS)
    assert stored_gigabits(row, start) == gigabits(pretrained, *files)


@pytest.mark.parametrize("method", ["tsv_c", "bitdelta", "t_switch", "t_switch:drop=0.3"])
def test_models_of_own_tensors_take_a_bundle_and_its_base(pretrained: Path, tmp_path: Path, method: str) -> None:
    """The table would have another size than the files that `tallmasks compress` writes, or none."""
    start, row = StartingPoint(open_checkpoint(pretrained), TRAINABLE), evaluation(method)
    contents = bundle_contents(row.method, row.tasks, start, row.mask_lambda)
    with new_coded_bundle(tmp_path / "bundle", contents) as new:
        for task in TASKS:
            for name, coding in contents.codings.items():
                new.write(task, name, coded_content(coding, np.random.default_rng(0)))
    assert len(files := parts(tmp_path / "bundle")) == 1 + len(TASKS)
    assert stored_gigabits(row, start) == gigabits(pretrained, *files)


def test_an_adapter_is_stored_beside_the_model_that_it_adapts(pretrained: Path, tmp_path: Path) -> None:
    """A row of an adapter would leave out the model that the adapter needs, or count it for every task."""
    adapter = tmp_path / "initial.safetensors"
    write_tensors(adapter, {"scales": np.ones(64_000, np.float32)}, {})
    start = StartingPoint(open_checkpoint(adapter), ("scales",), included=True, beside=pretrained.stat().st_size)
    assert stored_gigabits(evaluation("task_arithmetic"), start) == gigabits(pretrained, adapter)
    row = evaluation("magnitude_masking")
    with new_bundle(tmp_path / "bundle", bundle_contents(row.method, row.tasks, start, row.mask_lambda)) as new:
        new.write("scales", 0, np.ones(64_000, np.float32), {task: np.zeros(8000, np.uint8) for task in TASKS})
    assert stored_gigabits(row, start) == gigabits(pretrained, *parts(tmp_path / "bundle"))
