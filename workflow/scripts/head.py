"""Write the head of one task: computed from class names and prompt templates, or taken from the task's checkpoint."""

from typing import Any

from job import Job, main
from model_io import load_model
from reproduction.models.families import family
from reproduction.tasks.task import Task
from tallmasks.io.tensor_files import write_tensors


@main
def run(job: Job) -> None:
    if "checkpoint" in job.inputs:
        model_family: Any = family(job.params)
        tensors = model_family.trained_head(job.input("checkpoint"))
    else:
        model: Any = load_model(job)
        task = Task(job.output.stem, tuple(job.params["classes"]), tuple(job.params["templates"]), "")
        tensors = {"head": model.head(task).numpy()}
    print("head:", ", ".join(f"{name} {array.shape}" for name, array in tensors.items()), flush=True)
    write_tensors(job.output, tensors, job.metadata)
