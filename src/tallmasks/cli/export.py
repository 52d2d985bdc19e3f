"""Write the models of a bundle: weights and head, configuration and tokenizer of one task, or of all.

    tallmasks export ./bundle --task cars -o ./cars-again
    tallmasks export ./bundle --all -o ./models
    tallmasks export ./bundle --task cars --as-lora 16 -o ./cars-lora
    tallmasks export org/bundle@main --task cars --base ./base -o ./cars-again

The base model is read from --base, from the bundle if it is included, or from the path or repository that the bundle
names. It must be the base that the bundle was made with. The weights are theta_0 + m_t * tau_MTL, or theta_0 plus
the task's own update. The output is split into files as the base is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tallmasks.bundles.bundle import Bundle, load_bundle
from tallmasks.bundles.bundle_models import model_of
from tallmasks.bundles.manifest import task_files
from tallmasks.cli.printed_models import print_copied, print_lora
from tallmasks.cli.shared_options import AS_LORA, BUNDLES_BASE
from tallmasks.errors import OptionError, option_errors
from tallmasks.io.atomic_files import atomic_path, refuse_inside
from tallmasks.io.markdown import code_span, plain_markdown
from tallmasks.io.plain_files import expanded
from tallmasks.operations.as_lora import write_lora_of_task
from tallmasks.operations.merge_recipes import library_of
from tallmasks.progress import work_progress
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.writing import new_checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs, output = map(parser.add_argument_group, ("inputs", "output"))
    inputs.add_argument("bundle", type=expanded, metavar="BUNDLE", help="a folder, or a repository ORG/NAME[@REVISION]")
    tasks = inputs.add_mutually_exclusive_group(required=True)
    tasks.add_argument("--task", action="append", help="name of the task")
    tasks.add_argument("--all", action="store_true", help="every task, each in a folder of its own inside OUT")
    inputs.add_argument("--base", **BUNDLES_BASE)
    output.add_argument("-o", "--output", required=True, metavar="OUT", help="new file or folder")
    output.add_argument("--as-lora", **AS_LORA)


def run(arguments: argparse.Namespace) -> int:
    if len(arguments.task or ()) > 1:
        raise OptionError(f"--task: found {' and '.join(arguments.task)}; expected one, or --all")
    (arguments.task,) = arguments.task or (None,)
    output = Path(expanded(arguments.output))
    refuse_inside(output, arguments.bundle, arguments.base or "")
    bundle = load_bundle(arguments.bundle)
    if not arguments.all:
        with option_errors():
            bundle.manifest.check_task(arguments.task)  # before the base is opened
    if arguments.base:
        bundle = load_bundle(arguments.bundle, base=arguments.base)
    if not arguments.all:
        return _print(output, arguments.task, _export(bundle, arguments, arguments.task, output))
    models = {}
    with atomic_path(output, folder=True, new=True) as folder:
        for task, file in task_files(bundle.tasks, "").items():
            name = file if not bundle.base.is_folder else file.removesuffix(".safetensors")
            models[task] = output / name, _export(bundle, arguments, task, folder / name)
    for task, (path, model) in models.items():
        _print(path, task, model)
    return 0


def _export(bundle: Bundle, arguments: argparse.Namespace, task: str, output: Path) -> Checkpoint | list[str]:
    """Write a task's model. Returns it, or lines about it if it is a LoRA."""
    spec, rank = arguments.bundle, arguments.as_lora
    model = model_of(bundle, task, f"{spec}#{task}")
    refuse_inside(output, model.weights.base.title)  # the base that the bundle names
    front = f"---\nlibrary_name: {library_of(model) if rank is None else 'peft'}\ntags: [tallmasks]\n---\n\n"
    title = plain_markdown(task)
    text = f"# {title}\n\nThe model of {title}, exported from {code_span(spec)} by `tallmasks export`.\n"
    if rank is not None:
        return write_lora_of_task(model, output, rank, front + text)
    size = sum(info.size for info in model.tensors.values())
    with work_progress("exporting", size) as progress, new_checkpoint(output, model, front + text, progress=progress):
        return model


def _print(output: Path, task: str, model: Checkpoint | list[str]) -> int:
    if isinstance(model, list):
        print(f"{output}: the model of {task}, as a LoRA")
        print_lora(model, output)
        return 0
    print(f"{output}: the model of {task}{'' if model.is_folder else ', one file'}")
    print_copied(model)
    return 0
