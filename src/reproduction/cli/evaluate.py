"""Print the accuracy of text classifiers on labelled texts.

    tallmasks evaluate ./tickets --texts ./texts/tickets.csv
    tallmasks evaluate ./merged --texts tickets=./texts/tickets.csv --texts mails=./texts/mails.csv
    tallmasks evaluate ./bundle --texts tickets=./texts/tickets.csv --texts mails=./texts/mails.csv --split test

The model is the folder of a classifier; the folder of a merged model, which is evaluated with the head of each task
(`merge --heads`); or a bundle. With `--split`, the texts are divided as by `compare`, so that the accuracies are those
of its table if `--fractions` and `--max-tokens` are the same.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from reproduction.cli.compare import add_texts, outputs_of, text_settings
from reproduction.tasks.text.own_texts import evaluated_texts
from tallmasks.cli.options import by_name, converted
from tallmasks.errors import OptionError, TallmasksError, one_line
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import name_some

if TYPE_CHECKING:
    from reproduction.models.text_classifier.classifier_network import ClassifierModel
    from reproduction.tasks.texts import Text

HEADS = "heads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder of a classifier or of a merged model, or a bundle")
    parser.add_argument("--base", help="the bundle's base (default: the one that the bundle names)")
    add_texts(parser, converted(_texts, "[NAME=]FILE"), "[NAME=]FILE", "labelled texts; repeat for each task")
    parser.add_argument(
        "--split", choices=("all", "validation", "test"), default="all", help="texts to use (default: all)"
    )


def _texts(text: str) -> tuple[str | None, str]:
    name, equals, file = text.partition("=")
    if not file and equals:
        raise ValueError
    return (name, file) if equals else (None, text)


def run(arguments: argparse.Namespace) -> int:
    model, texts = Path(arguments.model), by_name("--texts", arguments.texts)
    if not texts:
        raise OptionError("missing: --texts; see `tallmasks evaluate --help`")
    with _folders(model, arguments.base, list(texts)) as folders:
        if missing := [name or "a file without a name" for name in texts if name not in folders]:
            tasks = ", ".join(str(name) for name in folders if name) or "none: give --texts one file without NAME="
            raise OptionError(f"--texts: found {name_some(missing)}; the tasks of {model} are {tasks}")
        for name, file in texts.items():
            folder, head = folders[name]
            outputs = functools.partial(_outputs, _config(folder, head), file)
            examples = evaluated_texts(name or model.name, text_settings(arguments, file), arguments.split, outputs)
            right = _count_right(folder, head, examples, arguments.max_tokens)
            what = f"{name or model}: {right / len(examples):.2%} of {len(examples)} texts"
            print(what if arguments.split == "all" else f"{what} ({arguments.split})", flush=True)
    return 0


@contextmanager
def _folders(model: Path, base: str | None, names: list[str | None]) -> Iterator[dict[str | None, tuple[Path, Any]]]:
    """The folder and, for merged models, the file of the head, by task."""
    if (model / "bundle.json").is_file():
        from tallmasks.bundles.bundle import load_bundle
        from tallmasks.bundles.bundle_models import model_of
        from tallmasks.vectors.checkpoints.writing import new_checkpoint

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
        yield dict.fromkeys([None, *(names if len(names) == 1 else ())], (model, None))


def _config(folder: Path, head: Path | None) -> Path:
    return folder / "config.json" if head is None else head.with_suffix(".json")


def _outputs(config: Path, file: str, labels: Collection[str]) -> dict[str, int]:
    if labels and not (outputs := outputs_of(config, file, labels)):
        raise TallmasksError(
            f"{config}: found no class names; write them into id2label, or use the numbers from 0 as labels in {file}, "
            "in the order of the model's outputs"
        )
    return outputs if labels else {}


def _count_right(folder: Path, head: Path | None, texts: Sequence[Text], longest: int) -> float:
    """The number of right answers, by the code of the tables."""
    from reproduction.evaluation.evaluator import Evaluator, TaskData
    from reproduction.models.text_classifier.classifier_examples import ClassifierExamples
    from reproduction.tasks.texts import Texts

    network = _load(folder, head, longest)
    examples = ClassifierExamples(Texts.of(texts, texts[0].answers), {})
    (right,) = Evaluator(network, [TaskData("texts", {"test": examples})], 64).as_is("test", network.initial())
    return float(right)


def _load(folder: Path, head: Path | None, longest: int) -> ClassifierModel:
    import torch
    import transformers
    from safetensors.torch import load_file

    from reproduction.models import cuda
    from reproduction.models.text_classifier.classifier_network import ClassifierModel, positions
    from reproduction.models.text_classifier.classifier_tokenizer import ClassifierTokenizer, open_tokenizer

    transformers.logging.set_verbosity_error()  # it reports the base's head, which is replaced
    transformers.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(_config(folder, head))
        network, report = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, dtype=torch.float32, ignore_mismatched_sizes=head is not None,
            output_loading_info=True, local_files_only=True,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        raise TallmasksError(f"{folder}: transformers cannot load it: {one_line(error)[:200]}") from None
    state = {} if head is None else load_file(head)
    if absent := sorted({*report["missing_keys"]} - state.keys()):
        raise TallmasksError(f"{folder}: found no {name_some(absent)}; expected a classifier with its head")
    network.load_state_dict(state, strict=False)
    network.to(cuda.choose(None))
    tokenizer = ClassifierTokenizer(open_tokenizer(folder), getattr(config.get_text_config(), "pad_token_id", None))
    parameters = dict(network.base_model.named_parameters())
    return ClassifierModel(network, parameters, tokenizer, min(longest, positions(network)))
