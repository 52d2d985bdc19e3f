"""Order the tasks by their zero-shot accuracies and by their names: figure 5's subsets are the first n of each."""

from job import Job, main
from tallmasks.evaluation.records import read_evaluation
from tallmasks.evaluation.subsets import orders


def run(job: Job) -> None:
    evaluations = [read_evaluation(path) for path in job.inputs["zeroshot"]]
    zeroshot = {evaluation.tasks[0]: float(evaluation.accuracy("test")[0]) for evaluation in evaluations}
    job.write_json({"zeroshot": zeroshot, "orders": orders(zeroshot)})


if __name__ == "__main__":
    main(run)
