"""Subtract the pretrained weights from a fine-tuned checkpoint; store the difference and its trim thresholds."""

from job import Job, main
from reproduction.models.families import family
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.task_vectors import compute_task_vector


@main
def run(job: Job) -> None:
    pretrained, params = job.input("pretrained"), job.params
    model_family = family(params)
    _, frozen = model_family.parameter_counts(params, open_checkpoint(pretrained).shapes)
    compute_task_vector(
        pretrained,
        job.input("checkpoint"),
        model_family.initial_state(params, pretrained),
        job.output,
        job.metadata,
        params["fractions"],
        frozen if params["fractions_of"] == "parameters" else 0,
    )
