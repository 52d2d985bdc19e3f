"""Evaluate one method on a set of tasks: choose from its grid on validation data, then evaluate once on test data."""

from job import Job, main, say
from model_io import load_model, load_tasks, new_evaluator
from reproduction.evaluation.method_evaluation import FromFiles, Tuner, evaluate
from reproduction.evaluation.records import read_joined, read_origins
from reproduction.evaluation.sweeps import sampled
from reproduction.models.checkpoint_sources import seen_validation
from reproduction.models.families import family
from reproduction.plan.chain import files_by_input
from tallmasks import methods


@main
def run(job: Job) -> None:
    method, model = methods.get(job.params["method"]), load_model(job)
    evaluator = new_evaluator(job, model, sampled(load_tasks(job), job.params.get("images", {})))
    source = FromFiles(method, job.params["tasks"], files_by_input(job.inputs), model.initial())
    grid = job.params.get("grid", ())
    tune = None
    if isinstance(method.usage, methods.Scaled):
        finetuned = read_joined(job.inputs["fine_tuned"]).accuracy("validation")
        zero_shot = read_joined(job.inputs["zero_shot"]).correct if "zero_shot" in job.inputs else None
        tune = Tuner(evaluator, grid, finetuned.tolist(), zero_shot)
    result = evaluate(method, source, evaluator, tune, grid)
    if result.grid:
        chosen = result.scaling_coefficient if result.mask_lambda is None else list(result.mask_lambda)
        what = "scaling coefficient" if result.mask_lambda is None else "mask lambdas"
        say(f"chosen on validation data: {what} {chosen}")
        if note := seen_validation(read_origins(job.inputs["fine_tuned"]), family(job.params).publishers):
            say(f"note: {note}")
    job.write_json(result.to_json())
