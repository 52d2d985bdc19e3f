"""Print the accuracy of classifiers on labelled texts or images.

    tallmasks evaluate ./tickets --texts ./texts/tickets.csv
    tallmasks evaluate ./merged --texts tickets=./texts/tickets.csv --texts mails=./texts/mails.csv
    tallmasks evaluate ./bundle --texts tickets=./texts/tickets.csv --texts mails=./texts/mails.csv --split test
    tallmasks evaluate ./leaves --images ./photographs/leaves

The model is the folder of a classifier; the folder of a merged model, which is evaluated with the head of each task
(`merge --heads`); or a bundle. Images are a folder with a folder per class, or have one of the other layouts that
`compare` takes. With `--split`, the data are divided as by `compare`, so that the accuracies are those of its table if
`--fractions` and `--max-tokens` are the same.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from reproduction.cli.labelled_data import (
    IMAGES,
    LONGEST,
    TEXTS,
    add_data,
    data_of,
    entry_of,
    image_labels,
    outputs_of,
)
from reproduction.models.checkpoint_sources import refuse_adapter
from reproduction.tasks.text.own_texts import evaluated_texts
from reproduction.tasks.vision.own_images import images_of, own_image_task
from tallmasks.cli.options import converted
from tallmasks.errors import OptionError, TallmasksError, name_some, one_line
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import load_state
from tallmasks.parallel import cores
from tallmasks.vectors.checkpoints.opening import open_checkpoint

HEADS = "heads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder of a classifier or of a merged model, or a bundle")
    parser.add_argument("--base", help="the bundle's base (default: the one that the bundle names)")
    add_data(parser, converted(_named, "[NAME=]PATH"), "[NAME=]PATH", "task")
    parser.add_argument(
        "--split", choices=("all", "validation", "test"), default="all", help="data to use (default: all)"
    )


def _named(text: str) -> tuple[str | None, str]:
    name, equals, path = text.partition("=") if not Path(text).exists() else ("", "", text)
    if not path and equals:
        raise ValueError
    return (name, path) if equals else (None, text)


def run(arguments: argparse.Namespace) -> int:
    model, (kind, paths) = Path(arguments.model), data_of(arguments)
    if not paths:
        raise OptionError("missing: --texts or --images; see `tallmasks evaluate --help`")
    if not model.is_dir() and "#" not in model.name:
        found = "found a file" if model.is_file() else "no such folder"
        raise OptionError(f"{model}: {found}; expected the folder of a model or a bundle, or BUNDLE#TASK")
    refuse_adapter(model)
    with _folders(model, arguments.base, list(paths)) as folders:
        if missing := [name or "a path without a name" for name in paths if name not in folders]:
            tasks = ", ".join(str(name) for name in folders if name) or f"none: give --{kind} one path without NAME="
            raise OptionError(f"--{kind}: found {name_some(missing)}; the tasks of {model} are {tasks}")
        for name, path in paths.items():
            folder, head = folders[name]
            evaluate = _texts if kind == TEXTS else _images
            right, count = evaluate(arguments, name or model.name, path, folder, head)
            what = f"{name or model}: {right / count:.2%} of {count} {kind}"
            print(what if arguments.split == "all" else f"{what} ({arguments.split})", flush=True)
    return 0


def _texts(arguments: argparse.Namespace, name: str, file: str, folder: Path, head: Path | None) -> tuple[float, int]:
    """The number of right answers, and of texts."""
    from reproduction.models.text_classifier.classifier_examples import ClassifierExamples
    from reproduction.models.text_classifier.classifier_network import ClassifierModel, positions
    from reproduction.models.text_classifier.classifier_tokenizer import ClassifierTokenizer, open_tokenizer
    from reproduction.tasks.texts import Texts

    config = _config(folder, head)
    outputs, entry = functools.partial(_outputs, config, file), entry_of(arguments, TEXTS, file, config)
    texts = evaluated_texts(name, entry, arguments.split, outputs)
    network = _load("AutoModelForSequenceClassification", folder, head)
    pad = getattr(network.config.get_text_config(), "pad_token_id", None)
    tokenizer, longest = ClassifierTokenizer(open_tokenizer(folder), pad), arguments.max_tokens or LONGEST
    body = dict(network.base_model.named_parameters())
    model = ClassifierModel(network, body, tokenizer, min(longest, positions(network)))
    return _count_right(model, ClassifierExamples(Texts.of(texts, texts[0].answers), {}), len(texts))


def _images(arguments: argparse.Namespace, name: str, path: str, folder: Path, head: Path | None) -> tuple[float, int]:
    """The number of right answers, and of images."""
    from reproduction.models.image_classifier.image_network import ImageClassifierModel
    from reproduction.models.vision.image_examples import open_examples
    from reproduction.tasks.vision.image_processing import processor_of, settings_of, write_processed

    config = _config(folder, head)
    entry, settings = entry_of(arguments, IMAGES, path, config), settings_of(folder)
    outputs = _outputs(config, path, image_labels(name, config, own_image_task(name, entry, table=False)))
    entry.setdefault("classes", list(outputs))
    task = own_image_task(name, entry, table=False)
    threads, say = cores(), functools.partial(print, file=sys.stderr)
    images = images_of(name, task.sources["data"], task.settings, arguments.split, None, threads, say)
    network = _load("AutoModelForImageClassification", folder, head)
    model = ImageClassifierModel(network, dict(network.base_model.named_parameters()), processor_of(settings))
    with TemporaryFolder() as temporary:
        file = temporary / "examples.safetensors"
        write_processed(images.images(), images.labels, settings, file, {}, threads, say)
        return _count_right(model, open_examples(file, {}), len(images.labels))


@contextmanager
def _folders(model: Path, base: str | None, names: list[str | None]) -> Iterator[dict[str | None, tuple[Path, Any]]]:
    """The folder and, for merged models, the file of the head, by task."""
    from tallmasks.bundles.bundle import load_bundle
    from tallmasks.bundles.bundle_models import model_of, open_model
    from tallmasks.vectors.checkpoints.writing import new_checkpoint

    one = [None, *(names if len(names) == 1 else ())]
    if not model.is_dir():
        opened = open_model(model, open_checkpoint(base) if base else None)
        with TemporaryFolder() as temporary:
            with new_checkpoint(temporary / "model", opened):
                pass
            yield dict.fromkeys(one, (temporary / "model", None))
    elif (model / "bundle.json").is_file():
        bundle = load_bundle(model, base)
        with TemporaryFolder() as temporary:
            folders: dict[str | None, tuple[Path, Any]] = dict.fromkeys(bundle.tasks, (temporary, None))
            for number, task in enumerate(task for task in bundle.tasks if task in names):
                folders[task] = temporary / str(number), None
                with new_checkpoint(folders[task][0], model_of(bundle, task, f"{model}#{task}")):
                    pass
            yield folders
    elif (model / HEADS).is_dir():
        yield {unquote(file.stem): (model, file) for file in sorted((model / HEADS).glob("*.safetensors"))}
    else:
        yield dict.fromkeys(one, (model, None))


def _config(folder: Path, head: Path | None) -> Path:
    return folder / "config.json" if head is None else head.with_suffix(".json")


def _outputs(config: Path, file: str, labels: Collection[str]) -> dict[str, int]:
    if labels and not (outputs := outputs_of(config, file, labels)):
        raise TallmasksError(
            f"{config}: found no class names; write them into id2label, or use the numbers from 0 as labels in {file}, "
            "in the order of the model's outputs"
        )
    return outputs if labels else {}


def _count_right(model: Any, examples: Any, count: int) -> tuple[float, int]:
    """By the code of the tables."""
    from reproduction.evaluation.evaluator import Evaluator, TaskData

    (right,) = Evaluator(model, [TaskData("data", {"test": examples})], 64).as_is("test", model.initial())
    return float(right), count


def _load(kind: str, folder: Path, head: Path | None) -> Any:
    """The network of a folder, of the class `transformers.<kind>`, on its device, with the head of a file."""
    import torch
    import transformers

    from reproduction.models import cuda

    transformers.logging.set_verbosity_error()  # it reports the base's head, which is replaced
    transformers.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(_config(folder, head))
        network, report = getattr(transformers, kind).from_pretrained(
            folder, config=config, dtype=torch.float32, ignore_mismatched_sizes=head is not None,
            output_loading_info=True, local_files_only=True,
        )  # fmt: skip
    except Exception as error:  # for a damaged file, those of every library that reads it
        open_checkpoint(folder)  # says which file is damaged
        raise TallmasksError(f"{folder}: transformers cannot load it: {one_line(error)[:200]}") from None
    state = {name: torch.from_numpy(values) for name, values in (load_state(head) if head else {}).items()}
    if absent := sorted({*report["missing_keys"]} - state.keys()):
        raise TallmasksError(f"{folder}: found no {name_some(absent)}; expected a classifier with its head")
    network.load_state_dict(state, strict=False)
    return network.to(cuda.choose(None))
