"""Write the numbers of figure 5: accuracy and storage of each method on the first n tasks of each order."""

import json

from job import Job, main
from reproduction.evaluation.records import read_evaluations, read_joined
from reproduction.evaluation.subsets import orders
from reproduction.results.sweep_tables import subset_table
from results_io import counts_of, publish


@main
def run(job: Job) -> None:
    zeroshot, finetuned = read_joined(job.inputs["zero_shot"]), read_joined(job.inputs["fine_tuned"])
    shown = job.params["orders"]
    evaluated = {order: [read_evaluations(path) for path in job.inputs[order]] for order in shown}
    table = subset_table(evaluated, zeroshot, finetuned, counts_of(job))
    ordered = {order: orders(zeroshot)[order] for order in shown}
    files = {"accuracy.csv": table.to_csv(index=False), "orders.json": json.dumps(ordered, indent=1) + "\n"}
    publish(job, files)
