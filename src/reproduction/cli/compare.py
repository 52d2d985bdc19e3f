"""Write the settings for a table of methods on your own text classifiers.

    tallmasks compare --base ./base --task tickets=./tickets --texts tickets=./tickets.csv \\
        --task mails=./mails --texts mails=./mails.csv -o compare.yaml
    snakemake -j4 results/mine/all/table.csv --configfile compare.yaml
    tallmasks compare compare.yaml

The models are folders in the layout of transformers: a base, and classifiers that were fine-tuned from it. Each needs
a file with labelled texts: .csv, .tsv, .jsonl or .parquet. The second command evaluates the paper's methods and those
that "Which method" recommends; alpha and lambda are chosen on validation texts. The third prints the table, and for
each row the command that makes its model or bundle. Edit the file for other methods.
"""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import tallmasks
from reproduction.evaluation.records import Evaluation, read_evaluation
from reproduction.models.checkpoint_sources import refuse_adapter
from reproduction.models.classifiers.settings import BOOKKEEPING, class_names_of
from reproduction.models.foreign_weights import json_of
from reproduction.plan import chain
from reproduction.plan.params import FILE, check_params, overridden, read_params
from reproduction.plan.project import Files
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from reproduction.tasks.text.own_texts import OwnTextTask, examples_of, own_text_tasks
from reproduction.tasks.text.text_catalogue import TASKS
from tallmasks import methods
from tallmasks.cli.options import by_name, number, pair, whole_number
from tallmasks.errors import OptionError, TallmasksError, counted, short, warn
from tallmasks.io.atomic_files import atomic_write_text, refuse_existing
from tallmasks.io.plain_files import expanded
from tallmasks.io.yaml_files import read_yaml, yaml_text
from tallmasks.methods import Masked, Method
from tallmasks.methods.few_bits import PLAIN
from tallmasks.methods.options import parse_spec
from tallmasks.vectors.checkpoints.folders import VOCABULARIES, matches

_METHODS = ["paper", "tsv_m", "wudi", "t_switch", {"tall_mask_ties": {"bits": 3}}]
_SAMPLED = 1000
"""Number of texts for which tokenizers are compared."""
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
    add_texts(
        parser, pair("NAME=FILE", "tickets=./tickets.csv"), "NAME=FILE", "its labelled texts; repeat for each model"
    )
    parser.add_argument(
        "-o", "--output", default="compare.yaml", metavar="OUT", help="new file (default: compare.yaml)"
    )


def add_texts(parser: argparse.ArgumentParser, kind: Callable[[str], Any], metavar: str, what: str) -> None:
    """The options that say which texts a model is evaluated on."""
    parser.add_argument("--texts", type=kind, action="append", default=[], metavar=metavar, help=what)
    parser.add_argument("--text", default="text", metavar="COLUMN", help="column of the texts (default: text)")
    parser.add_argument("--label", default="label", metavar="COLUMN", help="column of the labels (default: label)")
    parser.add_argument(
        "--fractions",
        type=number,
        nargs=2,
        default=[0.4, 0.4],
        metavar=("VALIDATION", "TEST"),
        help="fractions of each class's texts (default: 0.4 0.4)",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole_number,
        default=512,
        metavar="N",
        help="cut texts to N tokens; give the length used in training (default: 512, or the model's positions)",
    )


def text_settings(arguments: argparse.Namespace, file: str) -> dict[str, Any]:
    """The entry under `data` in params.yaml for a file of texts."""
    validation, test = arguments.fractions
    if min(validation, test) <= 0 or validation + test >= 1:
        raise OptionError(
            f"--fractions: found {validation:g} {test:g}; expected two numbers above 0 with a sum below 1"
        )
    entry: dict[str, Any] = {"files": file, "text": arguments.text, "label": arguments.label}
    return entry | {"fractions": {"validation": validation, "test": test}}


def run(arguments: argparse.Namespace) -> int:
    if arguments.settings:
        return _print_results(Path(arguments.settings))
    if not arguments.base:
        raise OptionError("missing: --base; see `tallmasks compare --help`")
    models, texts = by_name("--task", arguments.task), by_name("--texts", arguments.texts)
    if len(models) < 2 or models.keys() != texts.keys():
        raise OptionError(
            f"found --task for {', '.join(models) or 'no model'} and --texts for {', '.join(texts) or 'no model'}; "
            "expected both for the same two or more names"
        )
    if taken := sorted(models.keys() & TASKS.keys()):
        raise OptionError(f"--task: {taken[0]} is the name of a built-in task; choose another name")
    out = Path(expanded(arguments.output))
    if out.is_dir():
        raise OptionError(f"-o: {out} is a folder; expected a new file, such as {out / 'compare.yaml'}")
    refuse_existing(out, folder=False)
    data = {}
    for name, folder in models.items():
        refuse_adapter(Path(folder))
        data[name] = text_settings(arguments, texts[name])
    tasks = own_text_tasks({"data": data})
    for name, task in tasks.items():
        config = Path(models[name]) / "config.json"
        outputs = outputs_of(config, texts[name], task.classes)
        if missing := sorted(outputs.keys() - {*task.classes}):
            raise TallmasksError(
                f"{config}: found a head with {counted(len(outputs), 'output')}, but {texts[name]} has "
                f"{len(task.classes)} different labels, without {short(missing[0])}; expected texts of every class"
            )
        if not outputs:
            warn(
                f"the model's config.json has no class names; {out} has the sorted labels of "
                f"{texts[name]}. Put them into the order of the model's outputs",
                name,
            )
        data[name]["classes"] = class_names_of(config) or list(outputs or task.classes)
    settings = {
        "methods": _METHODS,
        "data": data,
        "models": {"mine": entry(arguments.base, models, arguments.max_tokens)},
    }
    _warn_of_tokenizers(Path(arguments.base), models, tasks, arguments.max_tokens)
    if FILE.exists():
        check_params(overridden(read_params(FILE), settings))  # as snakemake will
    atomic_write_text(out, yaml_text(settings))
    print(f"{out}: {len(models)} models")
    print(f"next: snakemake -j4 results/mine/all/table.csv --configfile {out}")
    return 0


def entry(base: str, models: dict[str, str], longest: int = 512) -> dict[str, Any]:
    """The models' entry in params.yaml. ``longest``: the number of tokens to which texts are cut."""
    config, *others = (json_of(Path(folder) / "config.json") for folder in (base, *models.values()))
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
        "scoring": {"max_input_tokens": longest},  # or the model's positions, if they are fewer
        "evaluation": {"batch_size": 64, "precision": "float32"},
        "resources": {step: dict(_STEP) for step in ("cpu", "one_task", "evaluation", "finetuning")},
    }


def outputs_of(config: Path, examples: str, labels: Collection[str]) -> dict[str, int]:
    """The model's output for each label, which is a class name of config.json, or a number from 0; empty if config.json
    has no class names, but the labels are names.

    ``labels``: those of the file ``examples``.  Raises TallmasksError for a head that is not for one of several
    classes, or does not have the labels.
    """
    content, names = json_of(config), class_names_of(config)
    if (kind := content.get("problem_type")) not in (None, "single_label_classification"):
        raise TallmasksError(f"{config}: problem_type: found {short(kind)}, expected one label for each example")
    sizes = [len(content[key]) for key in ("id2label", "label2id") if isinstance(content.get(key), dict)]
    count = next(size for size in (*sizes, content.get("num_labels"), 2) if isinstance(size, int))  # 2: transformers'
    numbers = list(map(str, range(count)))
    for forms in (names, numbers, [f"LABEL_{index}" for index in numbers]):
        if count > 1 and {*labels} <= {*forms} and len({*forms}) == count:
            return {label: output for output, label in enumerate(forms)}
    numbered = all(re.fullmatch(r"(LABEL_)?\d+", label) for label in labels)
    if count < 2 or len(labels) > count or (len(labels) < count and not (names or numbered)):
        raise TallmasksError(
            f"{config}: found a head with {counted(count, 'output')}, but {examples} has {len(labels)} different "
            "labels; expected a model that was trained for these labels"
        )
    if names or numbered:
        odd = min(labels, key=lambda label: label in (*names, *numbers))
        expected = f"{', '.join(map(short, names[:20]))}, or " if names else ""
        raise TallmasksError(
            f"{examples}: found the label {short(odd)}, which the model does not have; expected {expected}the numbers "
            f"0 to {count - 1}, in the order of the outputs of {config}"
        )
    return {}


def _warn_of_tokenizers(base: Path, models: Mapping[str, str], tasks: Mapping[str, OwnTextTask], longest: int) -> None:
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


def _has_tokenizer(folder: Path) -> bool:
    return any(matches(path.name, (*VOCABULARIES, "tokenizer_config.json")) for path in folder.iterdir())


def _print_results(settings: Path) -> int:
    """Print the table that was made with a file of settings, and a command for each row."""
    values = read_yaml(settings) if settings.is_file() else {}
    model = (values.get("models") or {}).get("mine")
    if not model:
        raise TallmasksError(f"{settings}: found no models.mine; expected a file written by `tallmasks compare`")
    plan = Plan(overridden(read_params(FILE), values))
    table = VIEWS["tables"](plan, "mine", "all")
    if problem := Files().problem(table):
        raise TallmasksError(f"{problem}; first run `snakemake -j4 {table.files[0]} --configfile {settings}`")
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


def _evaluation(plan: Plan, row: str) -> Evaluation:
    """A method's evaluation for the table, with the chosen values."""
    node = chain.evaluate(plan, "mine", plan.members(plan.tasks_for("mine", "all")), row, plan.seeds[0])
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
    masked = isinstance(method.protocol, Masked) and "bits" in method.options
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
