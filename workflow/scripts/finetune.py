"""Fine-tune the pretrained model on one task and write its trainable tensors."""

import json

from job import Job, main, say
from model_io import load_examples, load_model, origins
from reproduction.artifacts.folders import UNFINISHED, set_aside
from reproduction.models.families import family
from reproduction.training.controlled import part_mask
from reproduction.training.finetuning import FinetuneConfig, finetune
from reproduction.training.unfinished import TrainingState
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.io.tensor_files import write_tensors


@main
def run(job: Job) -> None:
    params, artifact = job.params, job.outputs["artifact"]
    config = FinetuneConfig(**params["finetuning"], seed=params["seed"], micro_batch_size=job.micro_batch_size)
    model = load_model(job, config.precision)
    state = TrainingState(UNFINISHED / artifact.name, job.metadata)
    if (problem := state.unfit()) is not None:
        say(f"{problem}: {set_aside(state.path)}; the training begins anew")
    result = finetune(
        model,
        params["task"],
        load_examples(job, "examples"),
        config,
        report=lambda progress: say(str(progress)),
        state=state,
        unit=family(params).unit,
        allowed=part_mask(model.flat.numel(), params["partition"]) if "partition" in params else None,
        validation=load_examples(job, "validation") if "validation" in job.inputs else None,
    )
    atomic_write_text(job.outputs["loss"], result.curve_csv())
    sources = origins(job, "examples")
    fields = {"origin": json.dumps(sources)} if sources else {}
    write_tensors(artifact, result.checkpoint, job.metadata | fields)
    state.remove()
