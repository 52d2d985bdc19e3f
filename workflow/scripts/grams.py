"""Compute the second moments of what enters each linear layer, for RegMean."""

from job import Job, main
from statistic_io import write_statistic
from tallmasks.evaluation.data_statistics import layer_grams


def run(job: Job) -> None:
    write_statistic(job, layer_grams)


if __name__ == "__main__":
    main(run)
