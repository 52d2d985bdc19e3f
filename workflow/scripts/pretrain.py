"""Pretrain a tiny model from nothing and put it where the project keeps the weights that it ships."""

from job import Job, main
from tallmasks.training.tiny_pretraining import pretrain_tiny
from tallmasks.training.tiny_t5_pretraining import pretrain_tiny_t5


def run(job: Job) -> None:
    if job.params["family"] == "t5":
        pretrain_tiny_t5(job.params, job.outputs["weights"])
    else:
        pretrain_tiny(job.params, job.outputs["weights"], processes=job.threads)


if __name__ == "__main__":
    main(run)
