"""Merge the task vectors of a set of tasks into one multi-task vector."""

from job import Job, main
from tallmasks.merging import write_multi_task_vector


def run(job: Job) -> None:
    write_multi_task_vector(job.params["merge"], job.inputs["task_vectors"], job.output, job.metadata)


if __name__ == "__main__":
    main(run)
