"""Prepare one split of one task: images and labels in one file, so that no later step draws or decodes anything."""

from job import Job, main
from tallmasks.checkpoints import write_tensors
from tallmasks.tasks import drawn


def prepare(job: Job) -> None:
    params = job.params
    images, labels = drawn.examples(params["task"], params["split"], params["count"], params["seed"])
    print(f"{params['task']} {params['split']}: {len(labels)} images", flush=True)
    write_tensors(job.output, {"images": images, "labels": labels}, job.metadata)


if __name__ == "__main__":
    main(prepare)
