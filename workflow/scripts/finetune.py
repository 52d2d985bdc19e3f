"""Fine-tune the trainable tensors of the pretrained model on one task; the head stays frozen."""

import torch
from job import Job, main
from model_io import load_examples, load_head, load_model, say

from tallmasks.checkpoints import write_tensors
from tallmasks.finetune import FinetuneConfig, finetune


def run(job: Job) -> None:
    params = job.params
    config = FinetuneConfig(seed=params["seed"], **params["finetuning"])
    examples = load_examples(job.input("examples"))
    head = torch.from_numpy(load_head(job.input("head")))
    result = finetune(
        load_model(job), head, examples.images, examples.labels, config, task=params["task"], progress=say
    )
    write_tensors(job.output, result.checkpoint, job.metadata)


if __name__ == "__main__":
    main(run)
