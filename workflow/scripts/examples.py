"""Prepare one split of one task: a file of examples, so that no later step draws, downloads or decodes anything."""

from job import Job, main, say
from tallmasks.tasks.catalogues import ExamplesFile, catalogue


def run(job: Job) -> None:
    sources = {role: path for role, (path,) in job.inputs.items()}
    out = ExamplesFile(job.output, job.metadata, job.threads, say)
    catalogue(job.model).write(job.params, sources, out)


if __name__ == "__main__":
    main(run)
