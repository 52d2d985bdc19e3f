"""Computed sizes equal those of real files."""

from pathlib import Path

import numpy as np
import pytest

from reproduction.evaluation.records import Evaluation
from reproduction.results.stored_files import StartingPoint, bundle_contents, stored_gigabits
from tallmasks import methods
from tallmasks.bundles.bundle_writer import new_bundle
from tallmasks.io.tensor_files import Layout, write_tensors
from tallmasks.methods.codec import coded_bytes, encode_piece
from tallmasks.vectors.checkpoints.opening import open_checkpoint

TASKS = ("b", "a", "c")
SHAPES = {"head.weight": (300, 50), "visual.bias": (7,), "visual.weight": (700, 501)}
TRAINABLE = ("visual.bias", "visual.weight")


@pytest.fixture
def pretrained(tmp_path: Path) -> Path:
    tensors = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    write_tensors(tmp_path / "theta0.safetensors", tensors | {"steps": np.arange(3)}, {"recipe": "r" * 500})
    return tmp_path / "theta0.safetensors"


def evaluation(method: str, sizes: tuple[int, ...] = ()) -> Evaluation:
    counts = {split: [10] * len(TASKS) for split in ("validation", "test")}
    return Evaluation(method, TASKS, total=counts, correct=counts, coded_bytes=sizes)


def bundled(name: str, start: StartingPoint, folder: Path) -> tuple[Evaluation, list[Path]]:
    """A row of random task vectors, and the files of its bundle."""
    method, draw = methods.get(name), np.random.default_rng(0)
    layout = Layout.of({name: start.base.float32(name) for name in start.trainable})
    theta = layout.join({name: start.base.float32(name) for name in start.trainable})
    vectors = {task: draw.normal(0, 0.02, layout.size).astype(np.float32) for task in TASKS}
    assert method.codec
    with new_bundle(folder, bundle_contents(name, TASKS, start)) as new:
        for tensor, first, last in new.pieces:
            here = slice(layout.parts[tensor].start + first, layout.parts[tensor].start + last)
            of_tensor = tensor, layout.by_name[tensor], first
            for task, tau in vectors.items():
                new.append(task, *encode_piece(method.codec, tau[here], theta[here], *of_tensor, **method.values))
    sizes = tuple(coded_bytes(method.codec, tau, theta, layout, **method.values) for tau in vectors.values())
    return evaluation(name, sizes), [path for path in folder.rglob("*") if path.suffix in {".json", ".safetensors"}]


def gigabits(*files: Path) -> float:
    return round(8 * sum(path.stat().st_size for path in files) / 1e9, 4)


def test_one_model_takes_a_file_like_the_pretrained_one(pretrained: Path) -> None:
    """A table would leave out frozen weights, such as the text encoder, that every stored file holds."""
    start = StartingPoint(open_checkpoint(pretrained), TRAINABLE)
    for method in ("zeroshot", "task_arithmetic", "consensus_ties", "iso_c"):
        assert stored_gigabits(evaluation(method), start) == gigabits(pretrained)
    for method in ("magnitude_pruning", "tall_mask_ties", "emr", "tsv_c"):  # the size of masks depends on their values
        assert stored_gigabits(evaluation(method), start) is None


def test_fine_tuned_models_take_a_checkpoint_each_and_what_is_frozen_once(pretrained: Path, tmp_path: Path) -> None:
    """The savings by masks would be computed from the wrong size."""
    checkpoint, values = tmp_path / "checkpoint", 4 * (7 + 700 * 501)
    write_tensors(checkpoint, {name: np.ones(SHAPES[name], np.float32) for name in TRAINABLE}, {})
    expected = round(8 * (3 * checkpoint.stat().st_size + pretrained.stat().st_size - values) / 1e9, 4)
    assert stored_gigabits(evaluation("fine_tuned"), StartingPoint(open_checkpoint(pretrained), TRAINABLE)) == expected


@pytest.mark.parametrize("method", ["stochastic_rounding", "stochastic_rounding:step=0.4", "lossless"])
def test_rounded_models_take_a_bundle_and_its_base(pretrained: Path, tmp_path: Path, method: str) -> None:
    """The table would have another size than the files that `tallmasks compress` writes, or none."""
    start = StartingPoint(open_checkpoint(pretrained), TRAINABLE)
    row, files = bundled(method, start, tmp_path / "bundle")
    assert len(files) == 1 + len(TASKS)
    assert stored_gigabits(row, start) == gigabits(pretrained, *files)


def test_an_adapter_is_stored_beside_the_model_that_it_adapts(pretrained: Path, tmp_path: Path) -> None:
    """A row of an adapter would leave out the model that the adapter needs, or count it for every task."""
    adapter = tmp_path / "initial.safetensors"
    write_tensors(adapter, {"scales": np.ones(64_000, np.float32)}, {})
    start = StartingPoint(open_checkpoint(adapter), ("scales",), included=True, beside=pretrained.stat().st_size)
    assert stored_gigabits(evaluation("task_arithmetic"), start) == gigabits(pretrained, adapter)
    row, files = bundled("stochastic_rounding", start, tmp_path / "bundle")
    assert stored_gigabits(row, start) == gigabits(pretrained, *files)
