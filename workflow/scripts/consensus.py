"""Count, weight by weight, how many tasks' selected masks hold it: the array behind every consensus mask."""

from job import Job, main
from tallmasks.evaluation.records import read_evaluation
from tallmasks.masks.consensus import write_agreement


def run(job: Job) -> None:
    selection = read_evaluation(job.input("selection"))
    chosen = dict(zip(selection.tasks, selection.mask_lambda or (), strict=True))
    write_agreement(job.output, job.input("mask_bundle"), chosen, job.metadata)


if __name__ == "__main__":
    main(run)
