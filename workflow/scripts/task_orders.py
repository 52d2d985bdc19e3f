"""Order the tasks by zero-shot accuracy and by name; figure 5's subsets are the first n tasks of each order."""

from job import Job, main
from reproduction.evaluation.records import read_evaluation
from reproduction.evaluation.subsets import orders


@main
def run(job: Job) -> None:
    evaluations = [read_evaluation(path) for path in job.inputs["zeroshot"]]
    zeroshot = {evaluation.tasks[0]: float(evaluation.accuracy("test")[0]) for evaluation in evaluations}
    job.write_json({"zeroshot": zeroshot, "orders": orders(zeroshot)})
