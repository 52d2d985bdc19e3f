"""Evaluate figure 5's methods on the first n tasks of an order; merges and masks are computed in memory."""

from job import Job, main, say
from model_io import load_model, load_tasks, new_evaluator
from reproduction.evaluation.method_evaluation import Tuner
from reproduction.evaluation.records import read_joined
from reproduction.evaluation.subsets import orders
from reproduction.evaluation.sweeps import TaskSubset, sampled
from tallmasks import methods
from tallmasks.vectors.task_vectors import open_task_vector


@main
def run(job: Job) -> None:
    params, model = job.params, load_model(job)
    names = sorted(orders(read_joined(job.inputs["zero_shot"]))[params["order"]][: params["n"]])
    tasks, images = load_tasks(job, only=names), params["images"]
    shared = new_evaluator(job, model, sampled(tasks, images))  # for alpha
    alone = new_evaluator(job, model, sampled(tasks, images, {"validation": images.get("validation")}))  # for lambdas
    finetuned = read_joined(job.inputs["fine_tuned"]).in_order(names).accuracy("validation").tolist()
    vectors = {task: open_task_vector(job.by_task("task_vectors")[task]) for task in names}
    pretrained = model.initial().cpu().numpy()
    subset = TaskSubset(vectors, pretrained, lambda grid: Tuner(shared, grid, finetuned), alone, params["grids"])
    evaluations = []
    for name in params["methods"]:
        say(f"{name} on {len(names)} tasks: {', '.join(names)}")
        evaluations.append(subset.evaluate(methods.get(name)).to_json())
    job.write_json({"evaluations": evaluations})
