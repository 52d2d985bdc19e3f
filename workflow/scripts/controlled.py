"""Write table 1: accuracy after standard and after controlled fine-tuning, single-task and merged."""

from job import Job, main
from reproduction.evaluation.records import Evaluation, read_evaluation
from reproduction.results.sweep_tables import controlled_table
from results_io import publish


@main
def run(job: Job) -> None:
    by_training = {}
    for finetuning in ("standard", "controlled"):
        *alone, merged = [read_evaluation(path) for path in job.inputs[finetuning]]
        by_training[finetuning] = (Evaluation.joined(alone), merged)
    files = {"controlled.csv": controlled_table(by_training).to_csv(index=False)}
    publish(job, files)
