"""Write what models out of bundles score and take on the disk, by the dtype of tau_MTL."""

import pandas as pd

from job import Job
from results_io import publish
from tallmasks.evaluation.records import Evaluation, read_dtypes, read_evaluation
from tallmasks.results.sweep_tables import stored_table


def run(job: Job) -> None:
    finetuned = Evaluation.joined([read_evaluation(path) for path in job.inputs["fine_tuned"]])
    tables = [stored_table(read_dtypes(path), finetuned) for path in job.inputs["dtypes"]]
    publish(job, {"stored.csv": pd.concat(tables).to_csv(index=False)}, {"finetuning_seeds": job.params["seeds"]})
