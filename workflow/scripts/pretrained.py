"""Bring pretrained weights, from the hub or from a file, into the form in which all other steps read them."""

import json

from job import Job, main
from tallmasks import models
from tallmasks.store.tensor_files import write_tensors


def run(job: Job) -> None:
    if "weights" in job.inputs:
        weights, origin = job.input("weights"), {"file": job.input("weights").name}
    else:
        weights, origin = models.download_pretrained(job.params, job.params["pretrained"])
    print(f"pretrained weights: {weights} ({', '.join(origin.values())})", flush=True)
    write_tensors(
        job.output, models.convert_pretrained(job.params, weights), job.metadata | {"origin": json.dumps(origin)}
    )


if __name__ == "__main__":
    main(run)
