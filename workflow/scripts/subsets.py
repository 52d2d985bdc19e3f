"""Write the numbers of figure 5: accuracy and storage of each method on the first n tasks of each order."""

import json

from job import Job, main
from reproduction.evaluation.records import Evaluation, read_evaluation, read_orders, read_subset
from reproduction.evaluation.subsets import distinct_subsets
from reproduction.results.sweep_tables import subset_table
from results_io import counts_of, publish


@main
def run(job: Job) -> None:
    orders, zeroshot = read_orders(job.input("orders"))
    ordered = {order: orders[order] for order in job.params["orders"]}
    evaluated = {}
    for path in job.inputs["subsets"]:
        evaluations = read_subset(path)
        evaluated[evaluations[0].tasks] = evaluations
    finetuned = Evaluation.joined([read_evaluation(path) for path in job.inputs["fine_tuned"]])
    table = subset_table(distinct_subsets(ordered), evaluated, finetuned, zeroshot, counts_of(job))
    files = {"accuracy.csv": table.to_csv(index=False), "orders.json": json.dumps(ordered, indent=1) + "\n"}
    publish(job, files)
