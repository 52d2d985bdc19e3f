"""Import a published checkpoint: check every tensor and keep the trainable ones."""

import json

from job import Job, main
from reproduction.models.families import family
from tallmasks.io import hub
from tallmasks.io.tensor_files import write_tensors


@main
def run(job: Job) -> None:
    checkpoint, model_family = job.params["checkpoint"], family(job.params)
    if "weights" in job.inputs:
        path, origin = job.input("weights"), {"source": checkpoint["source"], "file": job.input("weights").name}
    else:
        path = hub.download(checkpoint["repository"], checkpoint["file"], checkpoint["revision"])
        hub.refuse_damaged(path)
        origin = checkpoint | {"commit": hub.commit_of(path) or checkpoint["revision"]}
        source = model_family.publishers[checkpoint["source"]]
        if source.generation and checkpoint["revision"] == source.revision:
            origin["generation"] = source.generation
    print(f"checkpoint: {path} ({', '.join(origin.values())})", flush=True)
    arrays = model_family.convert_checkpoint(job.params, path, job.input("pretrained"))
    write_tensors(job.output, arrays, job.metadata | {"origin": json.dumps(origin)})
