"""Compute the squared gradients of the log-probabilities of one task's fine-tuned network over training examples."""

import ahead
from job import Job, main
from model_io import load_model
from statistic_io import write_statistic
from tallmasks.evaluation.data_statistics import squared_gradients


def run(job: Job) -> None:
    model = load_model(job, "float32")
    ahead.each(job, lambda one: write_statistic(one, model, squared_gradients))


if __name__ == "__main__":
    main(run)
