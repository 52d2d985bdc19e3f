"""Write the accuracy of consensus merging at each threshold k."""

import pandas as pd

from job import Job, main
from reproduction.evaluation.records import read_evaluation, read_joined
from reproduction.results.sweep_tables import threshold_table
from results_io import publish


@main
def run(job: Job) -> None:
    finetuned = read_joined(job.inputs["fine_tuned"])
    tables = [
        threshold_table(method, [read_evaluation(path) for path in job.inputs[method]], finetuned)
        for method in job.params["methods"]
    ]
    publish(job, {"thresholds.csv": pd.concat(tables).to_csv(index=False)})
