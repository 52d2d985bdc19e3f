"""Import a checkpoint that somebody else fine-tuned: check every tensor, and keep those that fine-tuning changes."""

import json

from safetensors.torch import load_file

from job import Job, main
from tallmasks.models.clip import tensor_names as naming
from tallmasks.models.imports import SOURCES, convert, read_state
from tallmasks.store import hub
from tallmasks.store.tensor_files import write_tensors


def run(job: Job) -> None:
    found = job.params["checkpoint"]
    if "weights" in job.inputs:
        path, origin = job.input("weights"), {"source": found["source"], "file": job.input("weights").name}
    else:
        path = hub.download(found["repository"], found["file"], found["revision"])
        origin = found | {"commit": hub.commit_of(path) or found["revision"]}
        source = SOURCES[found["source"]]
        if source.generation and found["revision"] == source.revision:
            origin["generation"] = source.generation
    print(f"checkpoint: {path} ({', '.join(origin.values())})", flush=True)
    trainable = naming.naming(job.params["family"]).trainable
    tensors = convert(read_state(path), load_file(job.input("pretrained")), trainable, path)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    write_tensors(job.output, arrays, job.metadata | {"origin": json.dumps(origin)})


if __name__ == "__main__":
    main(run)
