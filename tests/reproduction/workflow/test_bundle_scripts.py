"""The step that makes a bundle, on (IA)^3 vectors of a small T5: tensors that are in no pretrained file."""

import importlib
import sys
from pathlib import Path

import numpy as np

from conftest import ROOT
from reproduction.models.t5 import FAMILY
from small_t5 import SPEC, save_small
from tallmasks import load_bundle, methods
from tallmasks.bundles.verification import verify_bundle
from tallmasks.io.file_archives import archived_files
from tallmasks.io.tensor_files import write_tensors
from tallmasks.vectors.task_vectors import compute_task_vector, open_task_vector

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
bundle_archive, Job = importlib.import_module("bundle_archive"), importlib.import_module("job").Job

TASKS = ("cars", "dtd", "mnist")
ADAPTED = {**SPEC, "adapter": "ia3"}


def test_a_bundle_of_an_adapter_has_what_its_updates_are_added_to(tmp_path: Path) -> None:
    """The bundle of an adapter would need a base that is nowhere, or give another adapter than was evaluated."""
    weights, archive, folder = (tmp_path / name for name in ("weights.safetensors", "archive.safetensors", "bundle"))
    save_small(weights)
    initial, draw = FAMILY.initial_state(ADAPTED, weights), np.random.default_rng(0)
    vectors = {task: tmp_path / f"tau-{task}" for task in TASKS}
    for task, path in vectors.items():
        moved = {n: values + 0.1 * draw.normal(size=values.shape).astype(np.float32) for n, values in initial.items()}
        write_tensors(tmp_path / task, moved, {})
        compute_task_vector(weights, tmp_path / task, initial, path, {}, [0.2])
    params = {**ADAPTED, "method": "t_switch", "tasks": list(TASKS)}
    recipe = {"kind": "bundle_archive", "version": 1, "params": params, "inputs": {}}
    files = {"task_vectors": list(vectors.values()), "pretrained": [weights]}
    bundle_archive.run(Job(recipe, files, {"artifact": archive}))
    for name, content in archived_files(archive).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    assert verify_bundle(folder) == [] and (folder / "base").is_dir()
    bundle, method = load_bundle(folder), methods.get("t_switch")
    for task, path in vectors.items():
        vector, state = open_task_vector(path), bundle.state_dict(task)
        updates = vector.layout.split(method(task_vector=vector.flat, layout=vector.layout))
        assert state.keys() == initial.keys()
        for name, tensor in state.items():
            np.testing.assert_array_equal(tensor.numpy(), initial[name] + updates[name])
