"""Write one task's model from a bundle: its weights and head, configuration and tokenizer.

    tallmasks export ./bundle --task cars -o ./cars-again
    tallmasks export org/bundle@main --task cars --base ./base -o ./cars-again

The base model is read from --base, from the bundle if it is included, or from the path or repository that the bundle
names. It must be the base that the bundle was made with. The weights are theta_0 + m_t * tau_MTL, or theta_0 plus
the task's own update. The output is split into files as the base is.
"""

from __future__ import annotations

import argparse

from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_models import model_of
from tallmasks.cli.printed_models import print_copied
from tallmasks.errors import option_errors
from tallmasks.io.atomic_files import refuse_inside
from tallmasks.io.markdown import code_span, plain_markdown
from tallmasks.io.plain_files import expanded, new_path
from tallmasks.operations.merge_recipes import library_of
from tallmasks.progress import work_progress
from tallmasks.vectors.checkpoints.writing import new_checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs, output = map(parser.add_argument_group, ("inputs", "output"))
    inputs.add_argument("bundle", type=expanded, metavar="BUNDLE", help="a folder, or a repository ORG/NAME[@REVISION]")
    inputs.add_argument("--task", required=True, help="name of the task")
    inputs.add_argument(
        "--base",
        type=expanded,
        help="pretrained model: a file, a folder, or a repository (default: the one that the bundle names)",
    )
    output.add_argument("-o", "--output", required=True, metavar="OUT", help="new file or folder")


def run(arguments: argparse.Namespace) -> int:
    output = new_path(arguments.output)
    refuse_inside(output, arguments.bundle, arguments.base or "")
    bundle = load_bundle(arguments.bundle)
    with option_errors():
        bundle.manifest.check_task(arguments.task)  # before the base is opened
    if arguments.base:
        bundle = load_bundle(arguments.bundle, base=arguments.base)
    task = plain_markdown(arguments.task)
    model = model_of(bundle, arguments.task, f"{arguments.bundle}#{arguments.task}")
    refuse_inside(output, model.weights.base.title)  # the base that the bundle names
    front = f"---\nlibrary_name: {library_of(model)}\ntags: [tallmasks]\n---\n\n"
    text = f"# {task}\n\nThe model of {task}, exported from {code_span(arguments.bundle)} by `tallmasks export`.\n"
    size = sum(info.size for info in model.tensors.values())
    with work_progress("exporting", size) as progress, new_checkpoint(output, model, front + text, progress=progress):
        pass
    print(f"{output}: the model of {arguments.task}{'' if model.is_folder else ', one file'}")
    print_copied(model)
    return 0
