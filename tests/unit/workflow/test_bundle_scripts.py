"""The step that makes a bundle, on (IA)^3 vectors of a small T5: tensors that are in no pretrained file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from small_t5 import SPEC, save_small
from tallmasks import load_bundle, methods
from tallmasks.bundles.verification import verify_bundle
from tallmasks.evaluation.records import Evaluation
from tallmasks.masks.mask_bundles import open_mask_bundle, write_mask_bundle
from tallmasks.models.t5 import FAMILY
from tallmasks.store.artifacts import facts_of, write_json
from tallmasks.store.file_archives import archived_files
from tallmasks.store.tensor_files import write_tensors
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector, write_multi_task_vector
from tallmasks.vectors.task_vectors import compute_task_vector

for folder in ("runner", "scripts"):
    sys.path.insert(0, str(ROOT / "workflow" / folder))
bundle_archive, Job = importlib.import_module("bundle_archive"), importlib.import_module("job").Job

TASKS = ("cars", "dtd", "mnist")
ADAPTED = {**SPEC, "adapter": "ia3"}
LAMBDAS = dict(zip(TASKS, (0.2, 0.4, 0.4), strict=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, what three trainings would leave, and what the stages before the bundle make of it."""
    root = tmp_path_factory.mktemp("ia3")
    save_small(root / "weights.safetensors")
    initial, draw = FAMILY.initial_state(ADAPTED, root / "weights.safetensors"), np.random.default_rng(0)
    for task in TASKS:
        moved = {n: values + 0.1 * draw.normal(size=values.shape).astype(np.float32) for n, values in initial.items()}
        write_tensors(root / f"{task}.safetensors", moved, {})
        compute_task_vector(
            root / "weights.safetensors", root / f"{task}.safetensors", initial, root / f"tau-{task}", {}, [0.2]
        )
    vectors = {task: root / f"tau-{task}" for task in TASKS}
    write_multi_task_vector(methods.get_merge("sum"), "sum", list(vectors.values()), root / "sum", {"recipe": "r"})
    write_mask_bundle(root / "masks", vectors, root / "sum", [0.2, 0.4], {"recipe": "r"})
    counts = {split: [10] * len(TASKS) for split in ("validation", "test")}
    selection = Evaluation(
        "tall_mask_task_arithmetic",
        TASKS,
        total=counts,
        correct=counts,
        mask_lambda=tuple(LAMBDAS.values()),
        grid=(0.2, 0.4),
        curve=((10, 10),) * 3,
    )
    recipe = {"kind": "evaluation", "params": {"method": selection.method, "tasks": list(TASKS), "grid": [0.2, 0.4]}}
    write_json(root / "selection.json", selection.to_json(), facts_of(recipe, {}, 1))
    return root


def laid_out(made: Path, out: Path, method: str, inputs: dict[str, list[Path]]) -> Path:
    """The bundle as a folder, from the step's own artifact."""
    recipe = {"kind": "bundle_archive", "version": 1, "params": {**ADAPTED, "method": method, "tasks": list(TASKS)}}
    pretrained = {"pretrained": [made / "weights.safetensors"]}
    job = Job({**recipe, "inputs": {}}, {**inputs, **pretrained}, {"artifact": out / "archive.safetensors"})
    bundle_archive.run(job)
    for name, content in archived_files(out / "archive.safetensors").items():
        (out / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "bundle" / name).write_bytes(content)
    return out / "bundle"


def test_masks_of_an_adapter_come_back_with_what_they_are_added_to(made: Path, tmp_path: Path) -> None:
    """The bundle of an adapter would need a base that is nowhere, or give another adapter than was evaluated."""
    inputs = {role: [made / name] for role, name in (("multi_task_vector", "sum"), ("mask_bundle", "masks"))}
    folder = laid_out(made, tmp_path, "tall_mask_task_arithmetic", {**inputs, "selection": [made / "selection.json"]})
    assert verify_bundle(folder) == [] and (folder / "base").is_dir()
    bundle, masks = load_bundle(folder), open_mask_bundle(made / "masks")
    merged, initial = (
        open_multi_task_vector(made / "sum"),
        FAMILY.initial_state(ADAPTED, made / "weights.safetensors"),
    )
    assert bundle.manifest.mask_lambda == LAMBDAS
    for task, value in LAMBDAS.items():
        updates = masks.layout.split(merged * masks.mask(task, value))
        state = bundle.state_dict(task)
        assert state.keys() == initial.keys()
        for name, tensor in state.items():
            np.testing.assert_array_equal(tensor.numpy(), initial[name] + updates[name])
