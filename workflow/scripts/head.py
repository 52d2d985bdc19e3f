"""Write the head of one task: computed from class names and prompt templates or from training examples, or taken from
the task's checkpoint."""

from typing import cast

from job import Job, main
from model_io import load_examples, load_model
from reproduction.models.families import FamilyWithHeads, ModelWithHeads, family
from reproduction.tasks.task import Task
from tallmasks.io.tensor_files import write_tensors


@main
def run(job: Job) -> None:
    if "checkpoint" in job.inputs:
        tensors = cast(FamilyWithHeads, family(job.params)).trained_head(job.input("checkpoint"))
    else:
        model = cast(ModelWithHeads, load_model(job))
        task = Task(job.output.stem, tuple(job.params["classes"]), tuple(job.params.get("templates", ())), "")
        tensors = model.head(task, load_examples(job, "examples") if "examples" in job.inputs else None)
    print("head:", ", ".join(f"{name} {array.shape}" for name, array in tensors.items()), flush=True)
    write_tensors(job.output, tensors, job.metadata)
