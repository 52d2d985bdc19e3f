"""Order the tasks by their zero-shot accuracies and by their names: figure 5's subsets are the first n of each."""

import json

from job import Job, main
from results_io import load_evaluation
from tallmasks.checkpoints import atomic_write_text
from tallmasks.subsets import orders


def run(job: Job) -> None:
    found = [load_evaluation(path) for path in job.inputs["zeroshot"]]
    zeroshot = {evaluation.tasks[0]: float(evaluation.accuracy("test")[0]) for evaluation in found}
    written = {"zeroshot": zeroshot, "orders": orders(zeroshot), "recipe": job.recipe}
    atomic_write_text(job.output, json.dumps(written))


if __name__ == "__main__":
    main(run)
