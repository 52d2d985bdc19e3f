"""Compute the masks of all tasks for all mask lambdas in one pass."""

from job import Job, main
from tallmasks.masks.mask_grids import open_mask_grid, write_mask_grid


@main
def run(job: Job) -> None:
    mask_lambdas = job.params["mask_lambda"]
    write_mask_grid(job.output, job.by_task("task_vectors"), job.input("multi_task_vector"), mask_lambdas, job.metadata)
    bundle = open_mask_grid(job.output)
    for task in bundle.tasks:
        densities = "  ".join(f"{value}: {bundle.density(task, value):.4f}" for value in mask_lambdas)
        print(f"{task}: mask density by lambda  {densities}", flush=True)
