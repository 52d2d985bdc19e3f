"""Learn the parameters of a merge from all task vectors and unlabelled validation examples."""

from typing import Any

from job import Job, main, say
from model_io import load_model, load_tasks
from reproduction.evaluation.unlabelled import UnlabelledTasks
from tallmasks import methods
from tallmasks.io.tensor_files import write_tensors
from tallmasks.vectors.task_vectors import open_task_vector


@main
def run(job: Job) -> None:
    vectors = list(map(open_task_vector, job.inputs["task_vectors"]))
    examples = [task.splits["validation"] for task in load_tasks(job, ("validation",))]
    model: Any = load_model(job, "float32")
    network = UnlabelledTasks(model, examples, vectors, say)
    tensors = methods.get_merge(job.params["merge"]).learned(network)
    write_tensors(job.output, tensors, job.metadata)
