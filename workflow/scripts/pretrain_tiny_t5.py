"""Pretrain the tiny T5 from nothing and put it where the project keeps the weights that it ships."""

from job import Job, main
from tallmasks.training.tiny_t5_pretraining import pretrain_tiny_t5


def run(job: Job) -> None:
    pretrain_tiny_t5(job.params, job.outputs["weights"])


if __name__ == "__main__":
    main(run)
