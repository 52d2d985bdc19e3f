"""Write mean and spread over fine-tuning seeds for all methods."""

import seeds
from job import Job, main


@main
def run(job: Job) -> None:
    seeds.run(job)
