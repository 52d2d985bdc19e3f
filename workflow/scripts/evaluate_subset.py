"""Evaluate figure 5's methods on one set of tasks; merges and masks are computed in memory."""

from job import Job, main, say
from model_io import load_model
from reproduction.evaluation.protocols import Tuner
from reproduction.evaluation.sweeps import TaskSubset
from sweep_io import evaluators, finetuned_validation
from tallmasks import methods
from tallmasks.vectors.task_vectors import open_task_vector


@main
def run(job: Job) -> None:
    params, model = job.params, load_model(job)
    shared, alone = evaluators(job, model)
    finetuned = finetuned_validation(job)
    vectors = dict(zip(params["tasks"], map(open_task_vector, job.inputs["task_vectors"]), strict=True))
    pretrained = model.initial().cpu().numpy()
    subset = TaskSubset(vectors, pretrained, lambda grid: Tuner(shared, grid, finetuned), alone, params["grids"])
    evaluations = []
    for name in params["methods"]:
        say(f"{name} on {len(vectors)} tasks: {', '.join(vectors)}")
        evaluations.append(subset.evaluate(methods.get(name)).to_json())
    job.write_json({"evaluations": evaluations})
