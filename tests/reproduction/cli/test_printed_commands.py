"""The commands that `tallmasks compare compare.yaml` prints give the models of the table's rows."""

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from reproduction.cli.compare import command_for
from reproduction.evaluation.evaluator import unpack_mask
from reproduction.evaluation.method_evaluation import InMemory
from reproduction.evaluation.records import Evaluation
from tallmasks import load_bundle, methods
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import Fixed, Input, Masked, Method, Scaled
from tallmasks.methods.contract import MethodUpdates
from tallmasks.vectors.task_vectors import TaskVector

TASKS, LAYOUT = ("a", "b", "c"), Layout(("layer.weight",), ((96, 128),))
LAMBDAS = (0.2013579, 0.4013579, 0.6013579)  # of which no digit may be lost
ROWS = [
    "weight_averaging",
    "task_arithmetic",
    "ties:keep=0.1",
    "lines",
    "lines:beta=0.3",
    "tsv_m",
    "consensus_ties",
    "consensus_ties:keep=0.1",
    "consensus_ties:keep=0.1,k=3",
    "consensus_ties_k1",
    "consensus_dare",
    "consensus_dare:drop=0.7,seed=3",
    "tall_mask_ties:bits=3",
    "tall_mask_ties:bits=4,keep=0.1",
    "stochastic_rounding:step=0.5",
    "lossless",
]


def evaluation(row: str) -> Evaluation:
    """Chosen values, others for each row."""
    number, usage = zlib.crc32(row.encode()), methods.get(row).usage
    alpha = round(0.1 + number % 10**7 / 10**7, 7) if isinstance(usage, Scaled) else None
    lambdas = tuple(LAMBDAS[number // 3**task % 3] for task in range(3)) if isinstance(usage, Masked) else None
    grid = usage.grid({"scaling_coefficient": (0, 1), "mask_lambda": LAMBDAS})
    return Evaluation(row, TASKS, {}, {}, alpha, lambdas, grid)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and three models, each with a head of its own size."""
    folder, draw = tmp_path_factory.mktemp("models"), np.random.default_rng(7)
    base = draw.normal(size=(96, 128)).astype(np.float32)
    for classes, name in enumerate(("base", *TASKS), 2):
        change = 0 if name == "base" else 0.05 * draw.standard_t(3, size=base.shape).astype(np.float32)
        head = {} if name == "base" else {"classifier.weight": draw.normal(size=(classes, 4)).astype(np.float32)}
        (folder / name).mkdir()
        save_file({"layer.weight": base + change, **head}, folder / name / "model.safetensors")
    return folder


def weights_in(folder: Path) -> np.ndarray:
    return load_file(folder / "model.safetensors")["layer.weight"]


def expected(method: Method, folder: Path) -> list[np.ndarray]:
    """The models' weights, as the table evaluates them."""
    states = {name: weights_in(folder / name).ravel() for name in ("base", *TASKS)}
    vectors = [TaskVector(states[task] - states["base"], LAYOUT, {}) for task in TASKS]
    memory = InMemory(vectors, states["base"], sorted(LAMBDAS), lambda row: evaluation(row.name).mask_lambda or ())
    chosen, source = evaluation(method.name), memory.of(method)
    if method.tuned:
        merged = source.merged(methods.tuned_merge(method, chosen.scaling_coefficient or 0))
        return [states["base"] + method(multi_task_vector=merged)]
    size = vectors[0].flat.size

    def unpacked(declared: Input, value: np.ndarray) -> np.ndarray:
        return np.asarray(unpack_mask(value, size, torch.device("cpu"))) if declared.packed else value

    updates = MethodUpdates(method, source, unpacked)
    if isinstance(method.usage, Scaled | Fixed):
        fixed = method.usage.coefficient_for(3) if isinstance(method.usage, Fixed) else chosen.scaling_coefficient
        return [states["base"] + np.float32(fixed) * updates()]
    indices = [sorted(LAMBDAS).index(value) for value in chosen.mask_lambda or [LAMBDAS[0]] * 3]
    return [states["base"] + updates(task, index) for task, index in enumerate(indices)]


@pytest.mark.parametrize("row", ROWS)
def test_the_printed_command_makes_the_model_of_its_row(row: str, folder: Path, tmp_path: Path) -> None:
    """The best row of the table would be merged with the lambdas of another row, or without its options."""
    method, out = methods.get(row), tmp_path / "out"
    words = command_for(method, evaluation)
    models = [f"--base={folder}/base", *(f"--task={task}={folder}/{task}" for task in TASKS)]
    assert main([*words[1:-1], str(out), *models]) == 0
    if words[1] == "compress":
        bundle = load_bundle(out)
        made = [bundle.state_dict(task)["layer.weight"].numpy() for task in TASKS]
    else:
        made = [weights_in(out)]
        assert sorted(path.name for path in (out / "heads").glob("*.safetensors")) == [
            f"{t}.safetensors" for t in TASKS
        ]
    for weights, wanted in zip(made, expected(method, folder), strict=True):
        np.testing.assert_allclose(np.ravel(weights), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("row", "reason"), [("tall_mask_ties", "tall_mask_ties: {bits: 3}"), ("tvq", "for the table")])
def test_a_row_without_a_command_says_why(row: str, reason: str) -> None:
    """Its place would be empty, and the reader look for a mistake of his own."""
    with pytest.raises(TallmasksError, match=f"no command: .*{reason}"):
        command_for(methods.get(row), evaluation)
