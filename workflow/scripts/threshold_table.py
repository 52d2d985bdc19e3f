"""Write accuracy against the consensus threshold k of one benchmark, from the evaluations of each merge."""

import json

import pandas as pd

from job import Job, main
from results_io import load_evaluation, publish
from tallmasks.sweep_tables import threshold_table
from tallmasks.tables import Evaluation


def run(job: Job) -> None:
    finetuned = Evaluation.joined([load_evaluation(path) for path in job.inputs["fine_tuned"]])
    tables = []
    for path in job.inputs["thresholds"]:
        found = [Evaluation.from_json(value) for value in json.loads(path.read_text())["thresholds"]]
        tables.append(threshold_table(found, finetuned))
    files = {"thresholds.csv": pd.concat(tables).to_csv(index=False)}
    publish(job, files, {"finetuning_seeds": job.params["seeds"]})


if __name__ == "__main__":
    main(run)
