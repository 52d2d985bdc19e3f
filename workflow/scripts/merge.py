"""Merge the task vectors of a set of tasks into one multi-task vector."""

from job import Job, main
from tallmasks import methods
from tallmasks.vectors.task_vectors import write_multi_task_vector


@main
def run(job: Job) -> None:
    name, statistics = job.params["merge"], job.inputs.get("statistics", [])
    task_vectors = job.inputs["task_vectors"]
    write_multi_task_vector(methods.get_merge(name), name, task_vectors, job.output, job.metadata, statistics)
