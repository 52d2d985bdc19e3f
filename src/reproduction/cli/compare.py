"""Write the settings for a table of methods on your own classifiers of texts or images.

    tallmasks compare --base ./base --task tickets=./tickets --texts tickets=./tickets.csv \\
        --task mails=./mails --texts mails=./mails.csv -o compare.yaml
    snakemake -j4 results/mine/all/table.csv --configfile compare.yaml
    tallmasks compare compare.yaml

The models are folders in the layout of transformers: a base, and classifiers that were fine-tuned from it. Each needs
labelled texts, a .csv, .tsv, .jsonl or .parquet file; or labelled images, `--images NAME=PATH`: a folder with a folder
per class, also below train/, validation/ and test/; or such a file with the images or their paths. The second command
evaluates the paper's methods and those that "Which method" recommends; alpha and lambda are chosen on validation data.
The third prints the table, and for each row the command that makes its model or bundle. Edit the file for other
methods.
"""

from __future__ import annotations

import argparse
import functools
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tallmasks
from reproduction.cli.labelled_data import LONGEST, TEXTS, add_data, data_of, entry_of, image_labels, outputs_of
from reproduction.evaluation.records import Evaluation, read_evaluation
from reproduction.models.checkpoint_sources import refuse_adapter
from reproduction.models.classifiers.settings import BOOKKEEPING, class_names_of
from reproduction.models.foreign_weights import json_of
from reproduction.plan import chain
from reproduction.plan.params import FILE, check_params, overridden, read_params
from reproduction.plan.project import Files
from reproduction.plan.settings import COMPARED, Plan
from reproduction.plan.views import VIEWS
from reproduction.tasks.catalogues import catalogue
from reproduction.tasks.text.own_texts import examples_of, own_text_tasks
from reproduction.tasks.vision.image_processing import has_processor, processor_of
from reproduction.tasks.vision.image_processing import settings_of as processor_settings
from reproduction.tasks.vision.own_images import own_image_tasks, sample_of
from tallmasks import methods
from tallmasks.cli.options import by_name, pair
from tallmasks.errors import OptionError, TallmasksError, counted, short, warn
from tallmasks.io.atomic_files import atomic_write_text, refuse_existing
from tallmasks.io.plain_files import expanded
from tallmasks.io.yaml_files import read_yaml, yaml_text
from tallmasks.methods import Masked, Method
from tallmasks.methods.few_bits import PLAIN
from tallmasks.methods.options import parse_spec
from tallmasks.vectors.checkpoints.folders import VOCABULARIES, matches
from tallmasks.vectors.checkpoints.opening import open_checkpoint

_METHODS = ["paper", "tsv_m", "swudi_a", "t_switch", {"tall_mask_ties": {"bits": 3}}]
_SAMPLED = 1000
"""Number of texts for which tokenizers are compared."""
_SAMPLED_IMAGES = 100
"""Number of images for which image processors are compared."""
_STEP = {"threads": 1, "gpu": 0, "mem_mb": 8000, "runtime": 240}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("settings", nargs="?", metavar="FILE.yaml", help="print the table that was made with this file")
    parser.add_argument("--base", metavar="FOLDER", help="pretrained model")
    parser.add_argument(
        "--task",
        type=pair("NAME=FOLDER", "tickets=./tickets"),
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="fine-tuned classifier, and a name for it; repeat for each model",
    )
    add_data(parser, pair("NAME=PATH", "tickets=./tickets.csv"), "NAME=PATH", "model")
    parser.add_argument(
        "-o", "--output", default="compare.yaml", metavar="OUT", help="new file (default: compare.yaml)"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.settings:
        return _print_results(Path(arguments.settings))
    if not arguments.base:
        raise OptionError("missing: --base; see `tallmasks compare --help`")
    params = read_params(FILE)
    models, (kind, paths) = by_name("--task", arguments.task), data_of(arguments)
    if len(models) < 2 or models.keys() != paths.keys():
        option = f"--{kind}" if paths else "--texts or --images"
        raise OptionError(
            f"found --task for {', '.join(models) or 'no model'} and {option} for {', '.join(paths) or 'no model'}; "
            "expected both for the same two or more names"
        )
    of_kind = catalogue("text" if kind == TEXTS else "vision")
    if taken := sorted(models.keys() & of_kind.tasks({}).keys()):
        raise OptionError(f"--task: {taken[0]} is the name of a built-in task; choose another name")
    out = Path(expanded(arguments.output))
    if out.is_dir():
        raise OptionError(f"-o: {out} is a folder; expected a new file, such as {out / 'compare.yaml'}")
    refuse_existing(out, folder=False)
    for folder in models.values():
        refuse_adapter(Path(folder))
    configs = {name: Path(folder) / "config.json" for name, folder in models.items()}
    data = {name: entry_of(arguments, kind, paths[name], config) for name, config in configs.items()}
    tasks: Mapping[str, Any] = (own_text_tasks if kind == TEXTS else own_image_tasks)({"data": data})
    for name, task in tasks.items():
        config = configs[name]
        labels = task.classes if kind == TEXTS else image_labels(name, config, task)
        outputs = outputs_of(config, paths[name], labels)
        if missing := sorted(outputs.keys() - {*labels}):
            raise TallmasksError(
                f"{config}: found a head with {counted(len(outputs), 'output')}, but {paths[name]} has "
                f"{len(labels)} different labels, without {short(missing[0])}; expected {kind} of every class"
            )
        if not outputs:
            warn(
                f"the model's config.json has no class names; {out} has the sorted labels of "
                f"{paths[name]}. Put them into the order of the model's outputs",
                name,
            )
        data[name]["classes"] = class_names_of(config) or list(outputs or task.classes)
    longest, base = arguments.max_tokens or LONGEST, Path(arguments.base)
    model = entry(arguments.base, models)
    if kind == TEXTS:
        own: dict[str, Any] = {"scoring": {"max_input_tokens": longest}}  # or the model's positions, if they are fewer
        _warn_of_tokenizers(base, models, tasks, longest)
    else:
        own = {"family": "image_classifier", "tasks": "vision", "preprocess": processor_settings(base)}
        _warn_of_processors(own["preprocess"], models, tasks)
        if open_checkpoint(base).averages:
            warn(
                "the models have running statistics (BatchNorm): in the table, every method is evaluated with each "
                "task's own, which bundles store too; `tallmasks merge` averages them, so a merged model can have "
                "another accuracy than its row"
            )
    settings = {
        "methods": _METHODS,
        "data": data,
        "models": {COMPARED: model | own},
    }
    check_params(overridden(params, settings))  # as snakemake will
    atomic_write_text(out, yaml_text(settings))
    print(f"{out}: {len(models)} models")
    print(f"next: {_snakemake('results/mine/all/table.csv', out)}")
    return 0


def entry(base: str, models: dict[str, str]) -> dict[str, Any]:
    """The models' entry in params.yaml, for texts."""
    config, *others = (json_of(Path(folder) / "config.json") for folder in (base, *models.values()))
    for folder, other in zip(models.values(), others, strict=True):
        for key in ("model_type", "hidden_size", "num_hidden_layers"):
            if other.get(key) != config.get(key):
                raise TallmasksError(
                    f"{Path(folder) / 'config.json'}: {key}: found {short(other.get(key))}, but "
                    f"{Path(base) / 'config.json'} has {short(config.get(key))}; expected the base of this model"
                )
    pads = [each.get("pad_token_id") for each in (*others, config)]
    own = {each["pad_token_id"] for each in others if isinstance(each.get("pad_token_id"), int)}
    if len(own) > 1:
        raise TallmasksError(
            f"the models have different padding tokens, {', '.join(map(str, sorted(own)))} (pad_token_id in "
            "config.json), but are evaluated with one network; make a table for each kind"
        )
    pad = next((token for token in pads if isinstance(token, int)), None)
    architecture = {key: value for key, value in config.items() if key not in BOOKKEEPING}
    if config.get("is_encoder_decoder") and "eos_token_id" in config:  # where classifiers take their features
        architecture["eos_token_id"] = config["eos_token_id"]
    return {
        "family": "text_classifier",
        "tasks": "text",
        "architecture": architecture if pad is None else {**architecture, "pad_token_id": pad},
        "heads": "trained",
        "pretrained": base,
        "checkpoints": {"source": "finetune", "tasks": models},
        "benchmarks": {"all": list(models)},
        "finetuning": {  # only used for tasks without a checkpoint
            "iterations": 500,
            "batch_size": 32,
            "learning_rate": 5e-5,
            "weight_decay": 0.0,
            "epsilon": 1e-8,
        },
        "evaluation": {"batch_size": 64, "precision": "float32"},
        "resources": {step: dict(_STEP) for step in ("cpu", "one_task", "evaluation", "finetuning")},
    }


def _warn_of_tokenizers(base: Path, models: Mapping[str, str], tasks: Mapping[str, Any], longest: int) -> None:
    """Warn about models whose own tokenizer gives other inputs than the base's for a sample of their texts."""
    for name, folder in models.items():
        if not all(_has_tokenizer(one) for one in (base, Path(folder))):
            continue
        from reproduction.models.text_classifier.classifier_tokenizer import ClassifierTokenizer, open_tokenizer

        texts = [text.input for text in examples_of(name, tasks[name].file, tasks[name].settings, "test", _SAMPLED)]
        tokenizers = (ClassifierTokenizer(open_tokenizer(one), None) for one in (base, Path(folder)))
        ours, theirs = (tokenizer(texts, [0] * len(texts), longest) for tokenizer in tokenizers)
        if different := sum(mine != own for mine, own in zip(ours, theirs, strict=True)):
            warn(
                f"{folder}: its tokenizer reads {different} of {len(texts)} texts differently from the base's; the "
                "table uses the base's for all models, so this model's accuracy can be too low",
                name,
            )


def _warn_of_processors(base: Mapping[str, Any], models: Mapping[str, str], tasks: Mapping[str, Any]) -> None:
    """Warn about models without an image processor, or whose own gives other pixels than the base's for a sample of
    their images."""
    for name, folder in models.items():
        if not has_processor(Path(folder)):
            warn(f"{folder}: found no image processor; the base's prepares its images", name)
            continue
        own = processor_settings(Path(folder))
        if own == base:
            continue
        images = sample_of(tasks[name], name, _SAMPLED_IMAGES)
        ours, theirs = ([processor_of(one).inputs([image]) for image in images] for one in (base, own))
        if different := sum(not mine.equal(its) for mine, its in zip(ours, theirs, strict=True)):
            warn(
                f"{folder}: its image processor gives other pixels than the base's for {different} of {len(images)} "
                "images; the table uses the base's for all models, so this model's accuracy can be too low",
                name,
            )


def _has_tokenizer(folder: Path) -> bool:
    return any(matches(path.name, (*VOCABULARIES, "tokenizer_config.json")) for path in folder.iterdir())


def _print_results(settings: Path) -> int:
    """Print the table that was made with a file of settings, and a command for each row."""
    if not settings.is_file():
        raise TallmasksError(f"{settings}: no such file; expected a file written by `tallmasks compare`")
    values = read_yaml(settings)
    models = values.get("models") if isinstance(values, dict) else None
    model = models.get(COMPARED) if isinstance(models, dict) else None
    if not model:
        raise TallmasksError(f"{settings}: found no models.mine; expected a file written by `tallmasks compare`")
    plan = Plan(overridden(read_params(FILE), values))
    table = VIEWS["tables"](plan, COMPARED, "all")
    if problem := Files().problem(table):
        raise TallmasksError(f"{problem}; first run `{_snakemake(table.files[0], settings)}`")
    print(Path(table.files[1]).read_text().strip())
    words = ["--base", model["pretrained"]]
    for task, path in model["checkpoints"]["tasks"].items():
        words += ["--task", f"{task}={path}"]
    for row in map(methods.get, table.params["methods"]):
        if row.looks_at_one_task:
            continue
        print(f"\n# {row.title}")
        try:
            command = command_for(row, functools.partial(_evaluation, plan))
            print(shlex.join([*command[:2], *words, *command[2:]]))
        except TallmasksError as reason:
            print(f"# {reason}")
    return 0


def _snakemake(target: str, settings: Path) -> str:
    return shlex.join(["snakemake", "-j4", target, "--configfile", str(settings)])


def _evaluation(plan: Plan, row: str) -> Evaluation:
    """A method's evaluation for the table, with the chosen values."""
    node = chain.evaluate(plan, COMPARED, plan.members(plan.tasks_for(COMPARED, "all")), row, plan.seeds[0])
    try:
        return read_evaluation(Path(node.path))
    except FileNotFoundError:
        raise TallmasksError(f"no command: {node.path} with the values chosen for {row} is missing") from None


def command_for(method: Method, evaluation_of: Callable[[str], Evaluation]) -> list[str]:
    """The words of the command that makes a row's model or bundle, without its models.

    ``evaluation_of``: the evaluations of this method and, for consensus merging, of the one that chose its masks, by
    name.  Raises TallmasksError if there is no command.
    """
    name, texts = parse_spec(method.name)
    options = [word for option, text in texts.items() for word in ("--option", f"{option}={text}")]
    masked = isinstance(method.usage, Masked) and "bits" in method.options
    if masked and method.values["bits"] == PLAIN:
        raise TallmasksError(f"no command: bundles store fewer bits; evaluate {{{name}: {{bits: 3}}}}")
    if masked or method.codec:
        lambdas = _mask_lambdas(evaluation_of(method.name)) if masked else []
        return ["tallmasks", "compress", "--method", name, *options, *lambdas, "-o", name]
    if name not in tallmasks.method_names():
        raise TallmasksError("no command: it is only evaluated for the table")
    if "agreement" in method.needs:
        options += _mask_lambdas(evaluation_of(methods.masking(str(method.merge)).name))
    if (chosen := evaluation_of(method.name)).grid:
        value = chosen.scaling_coefficient
        options += ["--option", f"{method.tuned}={value}"] if method.tuned else ["--scaling-coefficient", f"{value}"]
    return ["tallmasks", "merge", "--method", name, *options, "--heads", "-o", name]


def _mask_lambdas(chosen: Evaluation) -> list[str]:
    assert chosen.mask_lambda is not None
    pairs = zip(chosen.tasks, chosen.mask_lambda, strict=True)
    return [word for task, value in pairs for word in ("--mask-lambda", f"{task}={value}")]
