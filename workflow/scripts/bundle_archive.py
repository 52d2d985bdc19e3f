"""Put the models of a set of tasks into a bundle: the base by reference, the merged vector, each task's chosen mask."""

import secrets
import shutil

from bundle_io import starting_point
from job import Job, main
from tallmasks.evaluation.records import read_evaluation
from tallmasks.masks.bundles import open_mask_bundle
from tallmasks.masks.task_bundle import write_from_planes
from tallmasks.results.stored_files import bundle_facts
from tallmasks.store.file_archives import archive_folder
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector


def run(job: Job) -> None:
    selection = read_evaluation(job.input("selection"))
    masks, merged = open_mask_bundle(job.input("mask_bundle")), open_multi_task_vector(job.input("multi_task_vector"))
    folder = job.output.with_name(f".{job.output.stem[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with starting_point(job) as start:
            facts = bundle_facts(selection, start)
            write_from_planes(folder / "bundle", facts, merged, masks)
        archive_folder(folder / "bundle", job.output, job.metadata)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for task, value in facts.mask_lambda.items():
        print(f"{task}: lambda = {value}", flush=True)


if __name__ == "__main__":
    main(run)
