"""Evaluate figure 5's methods on the first n tasks of an order; merges and masks are computed in memory."""

from job import Job, main, say
from model_io import finetuned_validation, load_model, load_tasks, new_evaluator
from reproduction.evaluation.protocols import Tuner
from reproduction.evaluation.records import Evaluation, read_evaluation
from reproduction.evaluation.subsets import orders
from reproduction.evaluation.sweeps import TaskSubset, sampled
from tallmasks import methods
from tallmasks.vectors.task_vectors import open_task_vector


@main
def run(job: Job) -> None:
    params, model = job.params, load_model(job)
    zeroshot = Evaluation.joined([read_evaluation(path) for path in job.inputs["zero_shot"]])
    names = sorted(orders(zeroshot)[params["order"]][: params["n"]])
    tasks, images = load_tasks(job, only=names), params["images"]
    shared = new_evaluator(job, model, sampled(tasks, images))  # for alpha
    alone = new_evaluator(job, model, sampled(tasks, images, {"validation": images.get("validation")}))  # for lambdas
    finetuned = [finetuned_validation(job)[task] for task in names]
    vectors = {task: open_task_vector(job.by_task("task_vectors")[task]) for task in names}
    pretrained = model.initial().cpu().numpy()
    subset = TaskSubset(vectors, pretrained, lambda grid: Tuner(shared, grid, finetuned), alone, params["grids"])
    evaluations = []
    for name in params["methods"]:
        say(f"{name} on {len(names)} tasks: {', '.join(names)}")
        evaluations.append(subset.evaluate(methods.get(name)).to_json())
    job.write_json({"evaluations": evaluations})
