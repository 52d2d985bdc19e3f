"""Write the accuracy on each task of merges of all other tasks, and of the pretrained and fine-tuned models."""

from job import Job, main
from reproduction.evaluation.records import read_evaluation
from reproduction.results.sweep_tables import held_out_for_people, held_out_table
from results_io import publish


@main
def run(job: Job) -> None:
    tasks = job.params["tasks"]
    evaluations = [read_evaluation(path) for role in ("task_evaluations", "evaluations") for path in job.inputs[role]]
    by_row = {(one.method, one.tasks[0]): one for one in evaluations}
    rows = {task: [by_row[name, task] for name in job.params["methods"]] for task in tasks}
    table = held_out_table(rows, {task: by_row["fine_tuned", task] for task in tasks})
    title = f"{job.params['model']}: each task of {job.params['benchmark']} left out of the merge"
    files = {"held_out.csv": table.to_csv(index=False), "held_out.md": held_out_for_people(table, title)}
    publish(job, files)
    print(files["held_out.md"])
