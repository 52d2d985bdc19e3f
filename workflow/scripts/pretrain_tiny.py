"""Pretrain the tiny model from nothing and put it where the project keeps the weights that it ships."""

from job import Job, main
from tallmasks.training.tiny_pretraining import pretrain_tiny


def run(job: Job) -> None:
    pretrain_tiny(job.params, job.outputs["weights"], processes=job.threads)


if __name__ == "__main__":
    main(run)
