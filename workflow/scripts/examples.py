"""Write the examples of one split of one task; later steps download and decode nothing."""

from job import Job, main, say
from reproduction.tasks.catalogues import ExamplesFile, catalogue


@main
def run(job: Job) -> None:
    sources = {role: path for role, (path,) in job.inputs.items()}
    out = ExamplesFile(job.output, job.metadata, job.threads, say)
    catalogue(job.model).write(job.params, sources, out)
