"""Prepare one split of one task: images and labels in one file, so that no later step draws or decodes anything."""

from job import Job, main
from tallmasks.store.tensor_files import write_tensors


def prepare(job: Job) -> None:
    if "data" in job.params:
        decode(job)
    else:
        draw(job)


def draw(job: Job) -> None:
    """A drawn task."""
    from tallmasks.tasks import drawn

    params = job.params
    images, labels = drawn.examples(params["task"], params["split"], params["count"], params["seed"])
    print(f"{params['task']} {params['split']}: {len(labels)} images", flush=True)
    write_tensors(job.output, {"images": images, "labels": labels}, job.metadata)


def decode(job: Job) -> None:
    """A vision task, from the hub or a local folder."""
    from tallmasks.tasks.vision.decoding import write_examples
    from tallmasks.tasks.vision.vision_tasks import task_of

    params = job.params
    write_examples(
        task_of(params),
        params["split"],
        params["side"],
        job.output,
        job.metadata,
        job.input("data") if "data" in job.inputs else None,
        job.threads,
        lambda line: print(line, flush=True),
    )


if __name__ == "__main__":
    main(prepare)
