"""The step that makes a bundle: of (IA)^3 vectors of a small T5, whose tensors are in no pretrained file; of masks."""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np

import reference
from chain import LAMBDAS, TRAINABLE, build
from conftest import ROOT
from reproduction.artifacts.labels import write_json
from reproduction.evaluation.records import Evaluation
from reproduction.models.t5 import FAMILY
from reproduction.plan.chain import evaluate, mask, merge
from reproduction.results.stored_files import StartingPoint
from small_t5 import SPEC, save_small
from tallmasks import load_bundle, methods
from tallmasks.bundles.verification import verify_bundle
from tallmasks.io.file_archives import archived_files
from tallmasks.io.tensor_files import write_tensors
from tallmasks.masks.mask_grids import open_mask_grid
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.task_vectors import compute_task_vector, open_multi_task_vector, open_task_vector
from task_bundles import nearest

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
    params = {**ADAPTED, "method": "stochastic_rounding", "tasks": list(TASKS)}
    recipe = {"kind": "bundle_archive", "version": 1, "params": params, "inputs": {}}
    files = {"task_vectors": list(vectors.values()), "pretrained": [weights]}
    bundle_archive.run(Job(recipe, files, {"artifact": archive}))
    for name, content in archived_files(archive).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    assert verify_bundle(folder) == [] and (folder / "base").is_dir()
    bundle, method = load_bundle(folder), methods.get("stochastic_rounding")
    for task, path in vectors.items():
        vector, state = open_task_vector(path), bundle.state_dict(task)
        theta = vector.layout.join(initial)
        updates = vector.layout.split(method(task_vector=vector.flat, pretrained=theta, layout=vector.layout))
        assert state.keys() == initial.keys()
        for name, tensor in state.items():
            np.testing.assert_array_equal(tensor.numpy(), initial[name] + updates[name])


def test_a_bundle_of_masks_has_the_models_of_the_evaluation(tmp_path: Path) -> None:
    """The bundle would have other models than the table, or those of another lambda."""
    chain, name = build(tmp_path), "tall_mask_ties:bits=3"
    base = Path(shutil.copy(tmp_path / "pretrained", tmp_path / "base.safetensors"))
    lambdas, counts = (
        dict(zip(chain.tasks, LAMBDAS[1:], strict=False)),
        {split: [1, 1, 1] for split in ("validation", "test")},
    )
    chosen = Evaluation(name, chain.tasks, total=counts, correct=counts, mask_lambda=tuple(lambdas.values()))
    write_json(tmp_path / "chosen.json", chosen.to_json(), {})
    merged_file, mask_file = tmp_path / "ties_sum", tmp_path / "masks-ties_sum"
    files = {evaluate.role: [tmp_path / "chosen.json"], merge.role: [merged_file], mask.role: [mask_file]}
    start = StartingPoint(open_checkpoint(base), TRAINABLE)
    bundle_archive.write_masked(Job({}, files, {}), start, tmp_path / "bundle")
    bundle, masks = load_bundle(tmp_path / "bundle", base), open_mask_grid(mask_file)
    assert bundle.manifest.mask_lambda == lambdas and bundle.manifest.tensors["c.frozen"].stored is False
    stored = nearest(open_multi_task_vector(merged_file), masks.layout, 3)
    for task, value in lambdas.items():
        kept = reference.unpacked(masks, task, value)
        assert bundle.density(task) == kept.mean() == masks.density(task, value)
        found = np.concatenate([bundle.update(task, tensor) for tensor in TRAINABLE])
        np.testing.assert_array_equal(found, methods.get(name)(stored_vector=stored, mask=kept))
