"""Evaluate the merged model of some tasks on other tasks, with the coefficient chosen on the merged tasks."""

from job import Job, main
from model_io import load_model, load_tasks, new_evaluator
from reproduction.evaluation.method_evaluation import FromFiles, evaluate_chosen
from reproduction.evaluation.records import read_evaluation
from reproduction.plan.chain import files_by_input
from tallmasks import methods


@main
def run(job: Job) -> None:
    method, model = methods.get(job.params["method"]), load_model(job)
    source = FromFiles(method, job.params["merged"], files_by_input(job.inputs), model.initial())
    chosen = read_evaluation(job.input("selection")).scaling_coefficient
    assert chosen is not None
    result = evaluate_chosen(method, source, new_evaluator(job, model, load_tasks(job)), chosen)
    job.write_json(result.to_json())
