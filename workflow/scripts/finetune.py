"""Fine-tune the trainable tensors of the pretrained model on one task; the head stays frozen."""

from job import Job, main
from model_io import load_examples, load_head, load_model, say
from tallmasks.checkpoints import write_tensors
from tallmasks.finetune import Augmentation, FinetuneConfig, finetune


def run(job: Job) -> None:
    params = job.params
    settings = params["finetuning"]
    config = FinetuneConfig(
        seed=params["seed"], **{**settings, "augmentation": Augmentation(**settings["augmentation"])}
    )
    examples = load_examples(job.input("examples"))
    result = finetune(
        load_model(job),
        params["task"],
        load_head(job.input("head")),
        examples.images,
        examples.labels,
        config,
        report=lambda progress: say(str(progress)),
    )
    write_tensors(job.output, result.checkpoint, job.metadata)


if __name__ == "__main__":
    main(run)
