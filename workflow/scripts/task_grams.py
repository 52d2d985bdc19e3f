"""Compute what enters each linear layer of one task's fine-tuned network, as second moments over training examples."""

import ahead
from job import Job, main
from model_io import load_model
from statistic_io import write_statistic
from tallmasks.evaluation.data_statistics import layer_grams


def run(job: Job) -> None:
    model = load_model(job, "float32")
    ahead.each(job, lambda one: write_statistic(one, model, layer_grams))


if __name__ == "__main__":
    main(run)
