"""Compute the squared gradients of the log-probabilities, for Fisher merging."""

from job import Job, main
from statistic_io import write_statistic
from tallmasks.evaluation.data_statistics import squared_gradients


def run(job: Job) -> None:
    write_statistic(job, squared_gradients)


if __name__ == "__main__":
    main(run)
