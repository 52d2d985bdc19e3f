"""Write the weights of figure 1: a block of four task vectors, their merge, masks and consensus mask."""

from job import Job, main
from reproduction.results.illustrated_block import illustrated_block
from results_io import publish
from tallmasks.vectors.task_vectors import open_task_vector


@main
def run(job: Job) -> None:
    vectors = dict(zip(job.params["tasks"], map(open_task_vector, job.inputs["task_vectors"]), strict=False))
    grid = job.params["grid"]
    table = illustrated_block(vectors, mask_lambda=grid[len(grid) // 2])
    publish(job, {"weights.csv": table.to_csv(index=False)})
