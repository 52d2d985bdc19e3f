"""Write a bundle of a set of tasks: multi-task vector and selected masks, or the task tensors that a method stores."""

from pathlib import Path

from job import Job, main
from reproduction.evaluation.records import read_evaluation
from reproduction.plan.chain import evaluate, mask, merge, task_vector
from reproduction.results.stored_files import StartingPoint, bundle_contents, starting_point
from tallmasks import methods
from tallmasks.bundles.bundle_writer import new_coded_bundle, write_from_planes
from tallmasks.io.atomic_files import hidden_beside
from tallmasks.io.file_archives import archive_folder
from tallmasks.masks.mask_bundles import open_mask_bundle
from tallmasks.vectors.task_vectors import open_multi_task_vector, open_task_vector


def write_masked(job: Job, start: StartingPoint, out: Path) -> None:
    selection = read_evaluation(job.input(evaluate.role))
    masks, merged = open_mask_bundle(job.input(mask.role)), open_multi_task_vector(job.input(merge.role))
    contents = bundle_contents(selection.method, selection.tasks, start, selection.mask_lambda)
    write_from_planes(out, contents, merged, masks)
    for task, value in contents.mask_lambda.items():
        print(f"{task}: lambda = {value}", flush=True)


def write_coded(job: Job, start: StartingPoint, out: Path) -> None:
    method, tasks = methods.get(job.params["method"]), job.params["tasks"]
    codec, contents = method.codec, bundle_contents(method.name, tasks, start)
    assert codec is not None
    with new_coded_bundle(out, contents) as new:
        for task, path in job.by_task(task_vector.role).items():
            vector = open_task_vector(path)
            for name, tensor in vector.layout.split(vector.flat).items():
                new.write(task, name, codec.content(tensor, new.manifest.codings[name], **method.chosen))
            print(f"{task}: {len(new.manifest.codings)} tensors", flush=True)


@main
def run(job: Job) -> None:
    codec = methods.get(job.params["method"]).codec
    with hidden_beside(job.output) as folder:
        with starting_point(job.params, job.input("pretrained")) as start:
            (write_coded if codec else write_masked)(job, start, folder / "bundle")
        archive_folder(folder / "bundle", job.output, job.metadata)
