"""Evaluate the models of a masking row out of bundles: one for each dtype of tau_MTL, at lambdas chosen before."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bundle_io import starting_point
from job import Job
from model_io import load_model, load_tasks, new_evaluator, say
from tallmasks.bundles.bundle_writer import write_from_planes
from tallmasks.bundles.loaded_bundle import Bundle, load_bundle
from tallmasks.evaluation.counting import Evaluator
from tallmasks.evaluation.records import SPLITS, Evaluation, Score, read_evaluation
from tallmasks.masks.mask_bundles import open_mask_bundle
from tallmasks.results.stored_files import bundle_facts
from tallmasks.store.atomic_files import hidden_beside
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector


def run(job: Job) -> None:
    selection, model = read_evaluation(job.input("selection")), load_model(job)
    masks, merged = open_mask_bundle(job.input("mask_bundle")), open_multi_task_vector(job.input("multi_task_vector"))
    evaluator = new_evaluator(job, model, load_tasks(job))
    by_dtype = {}
    with starting_point(job) as start, hidden_beside(job.output) as folder:
        facts = bundle_facts(selection.method, selection.tasks, start, selection.mask_lambda)
        beside = start.beside + (
            0 if start.included else sum(path.stat().st_size for path in start.base.files.values())
        )
        for dtype in job.params["dtypes"]:
            say(f"tau_MTL in {dtype}")
            place = folder / dtype
            write_from_planes(place, replace(facts, dtype=dtype), merged, masks)
            bundle = load_bundle(place)
            correct = {split: counted(evaluator, split, bundle, model.trainable) for split in SPLITS}
            evaluation = Evaluation(
                selection.method, selection.tasks, selection.total, correct, mask_lambda=selection.mask_lambda
            )
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and path.suffix != ".md")
            by_dtype[dtype] = {**evaluation.to_json(), "bytes": size + beside}
            shutil.rmtree(place)
    job.write_json({"dtypes": by_dtype})


def counted(evaluator: Evaluator, split: str, bundle: Bundle, trainable: Sequence[str]) -> list[Score]:
    """Right answers of each task's model out of a bundle on that task, [tasks]."""

    def update(place: int) -> Iterator[NDArray[np.float32]]:
        yield np.concatenate([bundle.update(bundle.tasks[place], name) for name in trainable])

    return [row[0] for row in evaluator.own(split, update, 1)]
