"""Write mean and spread over fine-tuning seeds of a benchmark's table."""

import pandas as pd

from job import Job, main
from reproduction.results.tables import seeds_table, seeds_table_for_people, summary_table
from results_io import counts_of, evaluations_of, publish


@main
def run(job: Job) -> None:
    counts = counts_of(job)
    summaries = {seed: summary_table(*evaluations_of(job, seed), counts) for seed in job.params["seeds"]}
    table = seeds_table(summaries)
    title = f"{job.params['model']} on {job.params['benchmark']}, fine-tuning seeds {job.params['seeds']}"
    rows = pd.concat([summary.assign(seed=seed) for seed, summary in summaries.items()])
    files = {
        "table.csv": table.to_csv(index=False, float_format="%.4f"),
        "table.md": seeds_table_for_people(table, title),
        "per_seed.csv": rows[["seed", "section", "method", "accuracy", "normalized_accuracy"]].to_csv(index=False),
    }
    publish(job, files)
    print(files["table.md"])
