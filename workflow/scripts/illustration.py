"""Write figure 1's block of real weights: four task vectors, what they merge to, their masks and the consensus."""

from job import Job, main
from results_io import publish
from tallmasks.results.illustrated_block import illustrated_block
from tallmasks.vectors.task_vectors import open_task_vector


def run(job: Job) -> None:
    vectors = dict(zip(job.params["tasks"], map(open_task_vector, job.inputs["task_vectors"]), strict=False))
    grid = job.params["grid"]
    table = illustrated_block(vectors, mask_lambda=grid[len(grid) // 2])
    publish(job, {"weights.csv": table.to_csv(index=False)})


if __name__ == "__main__":
    main(run)
