"""Import a checkpoint that somebody else fine-tuned: check every tensor, and keep those that fine-tuning changes."""

import json

from job import Job, main
from tallmasks.models.families import family
from tallmasks.store import hub
from tallmasks.store.tensor_files import write_tensors


def run(job: Job) -> None:
    checkpoint, kin = job.params["checkpoint"], family(job.params)
    if "weights" in job.inputs:
        path, origin = job.input("weights"), {"source": checkpoint["source"], "file": job.input("weights").name}
    else:
        path = hub.download(checkpoint["repository"], checkpoint["file"], checkpoint["revision"])
        hub.refuse_damaged(path)
        origin = checkpoint | {"commit": hub.commit_of(path) or checkpoint["revision"]}
        source = kin.publishers[checkpoint["source"]]
        if source.generation and checkpoint["revision"] == source.revision:
            origin["generation"] = source.generation
    print(f"checkpoint: {path} ({', '.join(origin.values())})", flush=True)
    arrays = kin.convert_checkpoint(job.params, path, job.input("pretrained"))
    write_tensors(job.output, arrays, job.metadata | {"origin": json.dumps(origin)})


if __name__ == "__main__":
    main(run)
