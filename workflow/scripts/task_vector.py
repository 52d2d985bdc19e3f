"""Subtract the pretrained weights from a fine-tuned checkpoint, and keep the trim thresholds with the difference."""

from job import Job, main

from tallmasks.checkpoints import open_tensors
from tallmasks.task_vectors import compute_task_vector


def subtract(job: Job) -> None:
    checkpoint = job.input("checkpoint")
    trainable = open_tensors(checkpoint).names
    compute_task_vector(
        job.input("pretrained"), checkpoint, trainable, job.output, job.metadata, list(job.params["keep"].values())
    )


if __name__ == "__main__":
    main(subtract)
