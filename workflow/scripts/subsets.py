"""Write figure 5's numbers: every method's accuracy on the first n tasks of every order, and what it stores."""

import json

from job import Job, main
from results_io import publish
from tables import counts_of
from tallmasks.evaluation.records import Evaluation, read_evaluation, read_orders, read_subset
from tallmasks.evaluation.subsets import distinct_subsets
from tallmasks.results.sweep_tables import subset_table


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


if __name__ == "__main__":
    main(run)
