"""Merge fine-tuned models of one base into one model.

    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method task_arithmetic -o ./merged
    tallmasks merge --base org/base --task a=org/a --task b=org/b@v2 --method consensus_ties --k 2 \\
        --mask-lambda 0.4 --mask-lambda b=0.3 --option keep=0.1 --scaling-coefficient 0.5 -o ./merged
    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method ties --density 0.5 --trim tensor \\
        --weight cars=0.7 --weight dtd=0.3 -o ./merged
    tallmasks merge --base ./base --task a=./lora-a --task b=./lora-b --method task_arithmetic --as-lora 32 -o ./lora
    tallmasks merge merge.yaml
    tallmasks merge ./merged/merge.yaml -o ./again

A checkpoint is a safetensors file, a transformers folder, a state dict saved by torch.save, a PEFT LoRA folder, a
repository of the hub, or one task of a bundle (./bundle#cars).

The output has the base's layout, tokenizer and configuration, plus a model card and a recipe, merge.yaml. The recipe
reproduces the model and refuses other inputs. Code files are not copied, and symbolic links that leave the folder are
not followed. If the merge fails, nothing is written. Checkpoints are read in pieces, so memory use does not depend on
model size; iso_c, iso_cts and tsv_m need memory for the largest tensor of every task.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tallmasks.cli import shared_options
from tallmasks.cli.options import converted, number, one_of
from tallmasks.cli.printed_models import (
    IN_LORA,
    IN_LORA_OF_ONE,
    IN_MERGED_FOLDER,
    print_copied,
    print_lora,
    print_plan,
    print_roles_of,
)
from tallmasks.io.dtypes import DTYPE_ALIASES, MERGED_DTYPES
from tallmasks.methods.weighting import TRIMS
from tallmasks.operations.agreed_files import warn_of_files
from tallmasks.operations.as_lora import adapter_of_merge
from tallmasks.operations.input_warnings import warn_of_configurations
from tallmasks.operations.merge import method_names, prepare_merge, write_merged
from tallmasks.vectors.checkpoints.writing import bytes_of_new


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs, method, output = shared_options.add_arguments(parser, None, method_names())
    inputs.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="merge only tensors whose names match, for example 'model.layers.*'; the others keep the base's values",
    )
    inputs.add_argument(
        "--heads",
        nargs="*",
        metavar="PATTERN",
        help="do not merge tensors whose names match, whose shapes differ, or that a model lacks: the merged model has"
        " the base's, and each task's are written to heads/NAME.safetensors",
    )
    inputs.add_argument(
        "--tokens",
        type=one_of(("base", "union")),
        metavar="{base,union}",
        help="for models with added tokens: keep the base's tokens, or those of all models (union, which needs"
        " a tokenizer.json in each model)",
    )
    method.add_argument(
        "--scaling-coefficient",
        type=number,
        metavar="ALPHA",
        help="factor of the merged task vector (default: the value recommended by the method's paper)",
    )
    method.add_argument(
        "--k",
        type=converted(lambda text: ("k", int(text)), "a whole number"),
        action="append",
        dest="option",
        metavar="K",
        help="for consensus methods: keep weights that are in the masks of at least K tasks (same as --option k=K)",
    )
    method.add_argument(
        "--weight",
        **shared_options.NUMBER_BY_TASK,
        help="factor of each task vector (default: 1); setting it changes the default of --scaling-coefficient to 1",
    )
    method.add_argument(
        "--density",
        **shared_options.NUMBER_BY_TASK,
        help="fraction of weights kept per task (TIES, DARE, ...; default: the method's own)",
    )
    method.add_argument(
        "--trim",
        type=one_of(TRIMS),
        metavar="{model,tensor}",
        help="for TIES: apply the density to the whole model, or to each tensor as mergekit does (default: model)",
    )
    method.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="divide by the sum of the weights (default: the method's own choice)",
    )
    output.add_argument(
        "--dtype",
        type=one_of(MERGED_DTYPES, DTYPE_ALIASES),
        help=f"dtype of the stored values: {', '.join(MERGED_DTYPES)} (default: the checkpoints')",
    )
    output.add_argument(
        "--out-shard-size",
        metavar="SIZE",
        help="largest size of a weight file in a folder, for example 5GB (default: split as the base is)",
    )
    output.add_argument("--as-lora", **shared_options.AS_LORA)


def run(arguments: argparse.Namespace) -> int:
    from tallmasks.operations.choosing import merge_best  # their libraries are slow to import
    from tallmasks.operations.merge_settings import OF_COMPRESS

    settings = shared_options.read_settings(arguments, None, OF_COMPRESS)
    choice = shared_options.read_choice(arguments, "{}")
    chosen = merge_best(settings, choice) if choice else None
    method, scaling_coefficient, weighting, models = chosen[:-1] if chosen else prepare_merge(settings)
    count, words = len(settings.tasks), IN_MERGED_FOLDER
    if settings.as_lora is not None:
        words = IN_LORA if count > 1 else IN_LORA_OF_ONE
    what = f"by {method.title}, alpha = {scaling_coefficient:g}"
    if arguments.dry_run:
        output = settings.output or Path("model" if models.base.is_folder else "model.safetensors")
        if settings.as_lora is None:
            size = bytes_of_new(output, models.base, settings.dtype, settings.out_shard_size)
        else:
            size = adapter_of_merge(method, scaling_coefficient, weighting, models).nbytes
        print_plan(models, f"merge {what}", words, size)
        warn_of_files(models.base, models.tasks)
        warn_of_configurations(models.base, models.tasks, models.heads)
        return 0
    of_lora = chosen[-1] if chosen else write_merged(method, scaling_coefficient, weighting, models)
    print(f"{settings.output}: {count} model{'s' * (count > 1)} merged {what}")
    if of_lora:
        print_lora(of_lora, settings.output)
    else:
        print_copied(models.base, models.tasks)
    print_roles_of(models, words, every=False)
    print(shared_options.NEXT)
    return 0
