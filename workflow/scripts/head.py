"""Compute CLIP's frozen zero-shot head of one task from class names and prompt templates."""

from typing import cast

from job import Job, main
from model_io import load_model
from reproduction.models.clip.network import ClipModel
from reproduction.tasks.task import Task
from tallmasks.io.tensor_files import write_tensors


@main
def run(job: Job) -> None:
    task = Task(job.output.stem, tuple(job.params["classes"]), tuple(job.params["templates"]), "")
    head = cast(ClipModel, load_model(job)).head(task).numpy()
    print(f"head of {len(task.classes)} classes x {len(task.templates)} templates: {head.shape}", flush=True)
    write_tensors(job.output, {"head": head}, job.metadata)
