"""Write the accuracy of consensus merging at each threshold k."""

import pandas as pd

from job import Job, main
from reproduction.evaluation.records import Evaluation, read_evaluation, read_thresholds
from reproduction.plan.figure_stages import threshold_of
from reproduction.results.sweep_tables import threshold_table
from results_io import publish
from tallmasks import methods


@main
def run(job: Job) -> None:
    finetuned = Evaluation.joined([read_evaluation(path) for path in job.inputs["fine_tuned"]])
    rows = [read_evaluation(path) for path in job.inputs["rows"]]
    tables = []
    for method, path in zip(job.params["methods"], job.inputs["thresholds"], strict=True):
        by_threshold = read_thresholds(path)
        for row in rows:
            of_row = methods.get(row.method)
            k = threshold_of(of_row)
            if k is not None and of_row.merge == methods.get(method).merge:
                by_threshold[k] = row
        tables.append(threshold_table(method, by_threshold, finetuned))
    files = {"thresholds.csv": pd.concat(tables).to_csv(index=False)}
    publish(job, files)
