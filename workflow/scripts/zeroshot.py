"""Write the pretrained model's accuracy on each task of a benchmark, next to published numbers."""

from job import Job, main
from reproduction.evaluation.records import read_evaluation, read_origins
from reproduction.results.paper import published_name
from reproduction.results.reference import beside_published
from reproduction.results.tables import interval_table
from results_io import publish


@main
def run(job: Job) -> None:
    by_task = {evaluation.tasks[0]: evaluation for evaluation in map(read_evaluation, job.inputs["task_evaluations"])}
    ours = (
        interval_table([by_task[task] for task in job.params["tasks"]]).query("split == 'test'").drop(columns="split")
    )
    table = beside_published(ours, published_name(job.params))
    origins = read_origins(job.inputs["task_evaluations"])
    publish(job, {"zeroshot.csv": table.to_csv(index=False)}, {"origins": origins})
    print(table.to_string(index=False))
    print(f"mean over {len(ours)} tasks: {ours['accuracy'].mean():.2f}")
