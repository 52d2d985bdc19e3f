"""The recipe of a merged model, `merge.yaml`, which reproduces it, and its model card for the hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tallmasks import __version__
from tallmasks.io.markdown import code_block, code_span, plain_markdown
from tallmasks.io.yaml_files import yaml_text
from tallmasks.methods import Fixed, Method, registry
from tallmasks.methods.options import parse_spec
from tallmasks.methods.weighting import Weighting
from tallmasks.operations.opened_models import Models
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folders import CONFIG

if TYPE_CHECKING:
    from tallmasks.operations.merge_settings import ChoiceRecord  # its libraries are slow to import

RECIPE, CARD = "merge.yaml", "README.md"
THIS_FOLDER = "<this folder>"
"""The folder of a card, in the code that loads the model."""
_LICENSE = re.compile(r"\A---\n(?:(?!---).*\n)*?license: *[\"']?([\w.-]+)")
_LONGEST_CARD = 1 << 20
_LIBRARIES = {
    "modules.json": "sentence-transformers",
    "model_index.json": "diffusers",
    "open_clip_config.json": "open_clip",
}
"""Libraries by a file that only their folders have."""


def recipe_of(method: Method, scaling_coefficient: float, weighting: Weighting, models: Models) -> str:
    """The recipe as YAML: every setting, every input with its commit or sha256, and the version."""
    settings = models.settings
    tasks = {
        name: settings.tasks[name].model_copy(
            update={
                "checkpoint": source_of(checkpoint),
                "weight": weighting.weights.get(name),
                "density": weighting.densities.get(name),
                "mask_lambda": mask_lambda if "agreement" in method.needs else None,
                "sha256": models.sha256s.get(name),
            }
        )
        for (name, checkpoint), mask_lambda in zip(models.tasks.items(), settings.mask_lambdas, strict=True)
    }
    recipe = settings.model_copy(
        update={
            "tallmasks": __version__,
            "base": source_of(models.base),
            "base_sha256": models.sha256s.get(None),
            "tasks": tasks,
            "method": parse_spec(method.name)[0],
            "options": registry.get_merge(str(method.merge)).values | method.values,
            "scaling_coefficient": None if isinstance(method.usage, Fixed) else scaling_coefficient,
            "trim": weighting.trim if weighting.trim != "model" else None,
            "normalize": weighting.normalize,
        }
    )
    not_recorded = {"output", "layers", "mask_lambda", "weight", "density"}  # the last three are recorded by task
    return yaml_text(recipe.model_dump(exclude_defaults=True, exclude=not_recorded))


def card_of_merged(
    method: Method,
    scaling_coefficient: float,
    models: Models,
    recipe: str,
    heads: Mapping[str, str],
    of_lora: Sequence[str] = (),
) -> str:
    """README.md of a merged model, with front matter for the hub. ``heads``: files of heads by task; ``of_lora``: lines
    about the model, if it is a LoRA of the base."""
    every = [models.base, *models.tasks.values()]
    named = [models.base] if of_lora else every
    repositories = list(dict.fromkeys(one.origin["repository"] for one in named if "repository" in one.origin))
    licenses = {_license(one) for one in every}
    front = [
        "---",
        *(["base_model:", *(f"- {json.dumps(name)}" for name in repositories)] if repositories else []),
        *([f"base_model_relation: {'adapter' if of_lora else 'merge'}"] if repositories else []),
        *([f"license: {licenses.pop()}"] if len(licenses) == 1 and None not in licenses else []),
        f"library_name: {'peft' if of_lora else library_of(models.base)}",
        "tags: [merge, model-merging, tallmasks]",
        "---",
    ]
    rows = [f"| {plain_markdown(name)} | {_link(checkpoint)} |" for name, checkpoint in models.tasks.items()]
    merged = [
        "# Merged model",
        "",
        f"{len(rows)} fine-tuned models of {_link(models.base)}, merged by {method.title} ({method.paper}) with the",
        f"scaling coefficient {scaling_coefficient:g}: theta_0 + {scaling_coefficient:g} tau_MTL, written by"
        " `tallmasks merge`.",
        "",
        "| task | checkpoint |",
        "|---|---|",
        *rows,
        "",
        *(_about_choice(models.settings.choice) if models.settings.choice else []),
        *of_lora,
        *(_about_heads(models, heads) if heads else []),
        '"Your fine-tuned models" in the documentation of tallmasks shows how to evaluate, serve and publish it.',
        f"`tallmasks merge {RECIPE} -o OUT` reproduces it from this file:",
        "",
        code_block(recipe, "yaml"),
        "",
    ]
    return "\n".join([*front, *merged])


def library_of(checkpoint: Checkpoint) -> str:
    """The library that loads a folder, as the hub names it."""
    for name, library in _LIBRARIES.items():
        if name in checkpoint.companions:
            return library
    if "pretrained_cfg" in checkpoint.config:
        return "timm"
    return "transformers" if "model_type" in checkpoint.config else "safetensors"


def heads_files(models: Models) -> dict[str, str]:
    """The file of each task's head, in the merged model's folder."""
    if not models.heads:
        return {}
    from tallmasks.bundles.manifest import task_files  # slow to import

    return task_files(models.heads, "heads/")


def config_beside(file: str) -> str:
    """The configuration that belongs to a head's file."""
    return f"{file.removesuffix('.safetensors')}.json"


def _about_choice(choice: ChoiceRecord) -> Iterator[str]:
    """Lines of the card: the values that were tried, and their scores."""
    keys = list(choice.tried[0])
    yield f"Chosen among these by the score that {code_span(choice.command)} printed:"
    yield from ["", f"| {' | '.join(keys)} |", f"|{'---:|' * len(keys)}"]
    yield from (f"| {' | '.join(plain_markdown(str(trial[key])) for key in keys)} |" for trial in choice.tried)
    yield ""


def _about_heads(models: Models, heads: Mapping[str, str]) -> Iterator[str]:
    """Lines of the card: the heads' files, and how to load one of a transformers model."""
    yield from ("The weights hold the head of the base. Each task has its own:", "", "| task | head |", "|---|---|")
    for task, file in heads.items():
        yield f"| {plain_markdown(task)} | {code_span(file)} |"
    yield ""
    task, file = next(iter(heads.items()))
    (name, *_) = models.tasks[task].config.get("architectures") or [""]
    if "model_type" in models.base.config and str(name).isidentifier():  # also in sentence-transformers' folders
        has_config = CONFIG in models.tasks[task].companions
        labels = f"{THIS_FOLDER}/{config_beside(file)}" if has_config else source_of(models.tasks[task])
        weights, of_peft, last = json.dumps(THIS_FOLDER), "", ""
        if models.settings.as_lora is not None:
            weights, of_peft = base_arguments(models.base), "from peft import PeftModel\n"
            last = f"model = PeftModel.from_pretrained(model, {json.dumps(THIS_FOLDER)})\n"
        yield code_block(
            f"""{of_peft}from safetensors.torch import load_file
from transformers import AutoConfig, {name}

config = AutoConfig.from_pretrained({json.dumps(labels)})  # the labels of the task
model = {name}.from_pretrained({weights}, config=config, ignore_mismatched_sizes=True)
model.load_state_dict(load_file({json.dumps(f"{THIS_FOLDER}/{file}")}), strict=False)
{last}""",
            "python",
        )
        yield ""


def source_of(checkpoint: Checkpoint) -> str:
    origin = checkpoint.origin
    if "repository" in origin:
        return f"{origin['repository']}@{origin['revision']}"
    return _as_path(checkpoint.title)


def _as_path(text: str) -> str:
    """Without ./ a path could also be a repository of the hub."""
    return text if text.startswith(("/", ".", "~")) else f"./{text}"


def path_from(folder: Path, base: Path) -> str:
    """The relative path of the base, or only its name if the path would publish the name of the home folder."""
    base, folder = base.absolute().parent.resolve() / base.name, folder.resolve()
    home = Path("~").expanduser().resolve()
    if base.is_relative_to(home) and not folder.is_relative_to(home):
        return base.name
    return os.path.relpath(base, folder)


def base_name(base: Checkpoint) -> str:
    """The repository of a LoRA's base, or its path from the current folder, which is where PEFT looks."""
    return base.origin.get("repository") or _as_path(path_from(Path(), Path(base.origin.get("path", base.title))))


def base_arguments(base: Checkpoint) -> str:
    """The arguments of transformers' `from_pretrained` for a LoRA's base."""
    revision = base.origin.get("revision")
    return json.dumps(base_name(base)) + (f", revision={json.dumps(revision)}" if revision else "")


def _link(checkpoint: Checkpoint) -> str:
    if repository := checkpoint.origin.get("repository"):
        return f"[{repository}](https://huggingface.co/{repository}) at `{checkpoint.origin['revision']}`"
    return code_span(source_of(checkpoint))


def _license(checkpoint: Checkpoint) -> str | None:
    if not checkpoint.is_folder or not checkpoint.files:
        return None
    path = next(iter(checkpoint.files.values())).parent / CARD
    if not path.is_file() or path.stat().st_size > _LONGEST_CARD:
        return None
    front_matter = _LICENSE.match(path.read_text(errors="replace"))
    return front_matter[1] if front_matter else None
