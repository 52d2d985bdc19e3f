"""Write accuracy against the consensus threshold k of one benchmark, from the evaluations of each merge."""

import pandas as pd

from job import Job
from results_io import publish
from tallmasks import methods
from tallmasks.evaluation.records import Evaluation, read_evaluation, read_thresholds
from tallmasks.results.sweep_tables import threshold_table


def run(job: Job) -> None:
    finetuned = Evaluation.joined([read_evaluation(path) for path in job.inputs["fine_tuned"]])
    rows = [read_evaluation(path) for path in job.inputs["rows"]]
    tables = []
    for method, path in zip(job.params["methods"], job.inputs["thresholds"], strict=True):
        found = read_thresholds(path)
        for row in rows:
            known = methods.get(row.method)
            if known.k is not None and known.merge == methods.get(method).merge:
                found[known.k] = row
        tables.append(threshold_table(method, found, finetuned))
    files = {"thresholds.csv": pd.concat(tables).to_csv(index=False)}
    publish(job, files, {"finetuning_seeds": job.params["seeds"]})
