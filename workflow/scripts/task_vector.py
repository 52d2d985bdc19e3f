"""Subtract the pretrained weights from a fine-tuned checkpoint, and keep the trim thresholds with the difference."""

from job import Job, main
from tallmasks.checkpoints import open_tensors
from tallmasks.models.naming import trainable_names
from tallmasks.task_vectors import compute_task_vector


def subtract(job: Job) -> None:
    pretrained = job.input("pretrained")
    trainable = trainable_names(job.params["family"], open_tensors(pretrained).names)
    compute_task_vector(
        pretrained, job.input("checkpoint"), trainable, job.output, job.metadata, job.params["fractions"]
    )


if __name__ == "__main__":
    main(subtract)
