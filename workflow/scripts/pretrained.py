"""Convert pretrained weights, from the hub or from a file, to the project's format."""

import json

from job import Job, main
from reproduction.models.families import family
from tallmasks.io.tensor_files import write_tensors


@main
def run(job: Job) -> None:
    model_family = family(job.params)
    if "weights" in job.inputs:
        weights, origin = job.input("weights"), {"file": job.input("weights").name}
    else:
        weights, origin = model_family.download_pretrained(job.params, job.params["pretrained"])
    print(f"pretrained weights: {weights} ({', '.join(origin.values())})", flush=True)
    tensors = model_family.convert_pretrained(job.params, weights)
    write_tensors(job.output, tensors, job.metadata | {"origin": json.dumps(origin)})
