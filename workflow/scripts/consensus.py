"""Count for each weight how many tasks' selected masks keep it; consensus masks are computed from this count."""

from job import Job, main
from reproduction.evaluation.records import read_evaluation
from tallmasks.masks.consensus import write_agreement


@main
def run(job: Job) -> None:
    selection = read_evaluation(job.input("selection"))
    chosen = dict(zip(selection.tasks, selection.mask_lambda or (), strict=True))
    write_agreement(job.output, job.input("mask_bundle"), chosen, job.metadata)
