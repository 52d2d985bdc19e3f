"""A small BERT with a tokenizer of words, as transformers saves it, and texts in three classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from reproduction.models.families import family
from reproduction.models.text_classifier.classifier_examples import ClassifierExamples
from reproduction.tasks.texts import PAIR, Text, Texts
from tallmasks.io.tensor_files import write_tensors

WORDS = ["the", "red", "green", "blue", "cat", "dog", "bird", "sees", "likes", "near", "who", "is", "it", "a"]
CLASSES = ("cat", "dog", "bird")
ARCHITECTURE: dict[str, Any] = {
    "model_type": "bert", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2,
    "vocab_size": 24, "max_position_embeddings": 16,
}  # fmt: skip
SPEC: dict[str, Any] = {"family": "text_classifier", "architecture": ARCHITECTURE, "heads": "class_names"}
TRAINED = {**SPEC, "heads": "trained"}


def small_tokenizer() -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special + WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=9)  # as in published files; the project does its own
    return tokenizer


def save_tokenizer(folder: Path, inputs: Sequence[str] = ("input_ids", "token_type_ids", "attention_mask")) -> None:
    """The tokenizer's files as transformers writes them; ``inputs``: what it returns."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=small_tokenizer(), model_input_names=list(inputs))
    tokenizer.save_pretrained(folder)


def save_folder(folder: Path, architecture: dict[str, Any] = ARCHITECTURE, seed: int = 0) -> Path:
    """A pretrained model as transformers saves it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = AutoModel.from_config(AutoConfig.for_model(**architecture, initializer_range=0.3))
    network.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_small(path: Path, spec: dict[str, Any] = SPEC) -> None:
    """A pretrained file in the project's format."""
    folder = save_folder(path.parent / "transformers", spec["architecture"])
    write_tensors(path, family(spec).convert_pretrained(spec, folder), {})


def small_texts(count: int, seed: int = 0) -> Texts:
    """Texts that name their class, every third one a pair of texts."""
    draw, found = np.random.default_rng(seed), []
    for index in range(count):
        label = index % len(CLASSES)
        words = [*draw.choice(WORDS, draw.integers(1, 6)), CLASSES[label]]
        found.append(Text(" ".join(words) + (f"{PAIR}it is" if index % 3 == 0 else ""), CLASSES, label))
    return Texts.of(found)


def small_examples(count: int, seed: int = 0, heads: str = "class_names") -> ClassifierExamples:
    draw = np.random.default_rng(1)
    if heads == "trained":
        head = {"classifier.weight": draw.normal(size=(3, 16)), "classifier.bias": draw.normal(size=3)}
    else:
        head = {"head": draw.normal(size=(3, 16))}
    return ClassifierExamples(small_texts(count, seed), {name: v.astype(np.float32) for name, v in head.items()})
