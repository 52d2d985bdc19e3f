"""Evaluate the models of a masking row out of bundles: one for each dtype of tau_MTL, at lambdas chosen before."""

import secrets
import shutil
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bundle_io import open_theta0, trainable_of
from job import Job, main
from model_io import load_model, load_tasks, new_evaluator, say
from tallmasks.evaluation.records import SPLITS, Evaluation, read_evaluation
from tallmasks.masks.bundles import open_mask_bundle
from tallmasks.masks.task_bundle import load_bundle, write_from_planes
from tallmasks.results.stored_files import bundle_facts
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector


def run(job: Job) -> None:
    selection, theta0, model = read_evaluation(job.input("selection")), open_theta0(job), load_model(job)
    facts = bundle_facts(selection, theta0, trainable_of(job, theta0))
    masks, merged = open_mask_bundle(job.input("mask_bundle")), open_multi_task_vector(job.input("multi_task_vector"))
    evaluator = new_evaluator(job, model, load_tasks(job))
    folder = job.output.with_name(f".{job.output.stem[:100]}.{secrets.token_hex(6)}.tmp")
    found = {}
    try:
        for dtype in job.params["dtypes"]:
            say(f"tau_MTL in {dtype}")
            write_from_planes(folder / dtype, replace(facts, dtype=dtype), merged, masks)
            bundle = load_bundle(folder / dtype)

            def update(place: int) -> Iterator[NDArray[np.float32]]:
                yield np.concatenate([bundle.update(facts.tasks[place], name) for name in model.trainable])  # noqa: B023

            correct = {split: [row[0] for row in evaluator.own(split, update, 1)] for split in SPLITS}
            evaluation = Evaluation(
                selection.method, selection.tasks, selection.total, correct, mask_lambda=selection.mask_lambda
            )
            files = [*theta0.files.values(), *(folder / dtype).glob("**/*.safetensors"), folder / dtype / "bundle.json"]
            found[dtype] = {**evaluation.to_json(), "bytes": sum(path.stat().st_size for path in files)}
            shutil.rmtree(folder / dtype)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    job.write_json({"dtypes": found})


if __name__ == "__main__":
    main(run)
