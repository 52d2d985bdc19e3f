"""Write a bundle of a set of tasks: the shared vector and the selected masks, or each task's rounded task vector."""

from collections import Counter
from pathlib import Path

import numpy as np

from job import Job, main
from reproduction.evaluation.records import read_evaluation
from reproduction.results.stored_files import StartingPoint, bundle_contents, starting_point
from tallmasks import methods
from tallmasks.bundles.bundle_writer import new_bundle
from tallmasks.bundles.streams import encoded, mask_words
from tallmasks.io.atomic_files import hidden_beside
from tallmasks.io.file_archives import archive_folder
from tallmasks.masks.mask_grids import count_bits, open_mask_grid
from tallmasks.methods.codec import encode_piece
from tallmasks.vectors.task_vectors import open_multi_task_vector, open_task_vector


def write_masked(job: Job, start: StartingPoint, out: Path) -> None:
    selection = read_evaluation(job.input("selection"))
    assert selection.mask_lambda is not None
    lambdas = dict(zip(selection.tasks, selection.mask_lambda, strict=True))
    masks, merged = open_mask_grid(job.input("mask_bundle")), open_multi_task_vector(job.input("multi_task_vector"))
    layout, kept = masks.layout, Counter[str]()
    bits = int(methods.get(selection.method).values["bits"])
    with new_bundle(out, bundle_contents(selection.method, selection.tasks, start)) as new:
        for name, first, last in new.pieces:
            part = slice(layout.parts[name].start + first, layout.parts[name].start + last)
            quantized = methods.in_few_bits(merged[part], layout.by_name[name], bits)
            new.append(None, encoded(quantized.integers), quantized.scale)
            for task, value in lambdas.items():
                words = mask_words(masks.packed_piece(task, value, part.start, part.stop), last - first)
                kept[task] += count_bits(words.view(np.uint8))
                new.append(task, encoded(words))
        new.mask_lambda.update(lambdas)
        new.density.update({task: kept[task] / max(layout.size, 1) for task in lambdas})
    for task, value in lambdas.items():
        print(f"{task}: lambda = {value}", flush=True)


def write_updates(job: Job, start: StartingPoint, out: Path) -> None:
    method, tasks = methods.get(job.params["method"]), job.params["tasks"]
    assert method.codec is not None
    vectors = {task: open_task_vector(path) for task, path in job.by_task("task_vectors").items()}
    with new_bundle(out, bundle_contents(method.name, tasks, start)) as new:
        for name, first, last in new.pieces:
            theta, shape = start.base.piece(name, first, last), tuple(start.base.info(name).shape)
            for task, vector in vectors.items():
                offset = vector.layout.parts[name].start
                tau = vector.flat[offset + first : offset + last]
                new.append(task, *encode_piece(method.codec, tau, theta, name, shape, first, **method.values))


@main
def run(job: Job) -> None:
    codec = methods.get(job.params["method"]).codec
    with hidden_beside(job.output) as folder:
        with starting_point(job.params, job.input("pretrained")) as start:
            (write_updates if codec else write_masked)(job, start, folder / "bundle")
        archive_folder(folder / "bundle", job.output, job.metadata)
