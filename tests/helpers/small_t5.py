"""A small T5 v1.1 with a Unigram tokenizer of its own, random weights, and examples for it."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.utils.sentencepiece_model_pb2_new import ModelProto

from reproduction.models.t5.t5_architectures import Architecture
from reproduction.tasks.texts import FREE, Text, Texts, open_texts, write_texts
from tallmasks.io.tensor_files import write_tensors

ARCHITECTURE: dict[str, Any] = {
    "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2, "dropout_rate": 0.1,
}  # fmt: skip
SPEC: dict[str, Any] = {"family": "t5", "architecture": ARCHITECTURE}
SENTENCE = "red green blue cat dog bird sees likes near the a who what colour is it yes no maybe not"
WORDS = SENTENCE.split()


@functools.cache
def tokenizer_json() -> str:
    """A Unigram tokenizer trained on a few sentences; each training gives another one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    draw = np.random.default_rng(0)
    tokenizer.train_from_iterator([" ".join(draw.choice(WORDS, 8)) for _ in range(400)], trainer)
    return tokenizer.to_str()


def spiece_model(pieces: list[tuple[str, float, int]] | None = None, kind: int = 1) -> bytes:
    """Pieces (text, score, type) as a file of SentencePiece's; by default those of `tokenizer_json`."""
    if pieces is None:
        types = {"<pad>": 3, "</s>": 3, "<unk>": 2}
        vocabulary = json.loads(tokenizer_json())["model"]["vocab"]
        pieces = [(text, score, types.get(text, 1)) for text, score in vocabulary]
    model = ModelProto()
    for text, score, type_ in pieces:
        model.pieces.add(piece=text, score=score, type=type_)
    model.trainer_spec.model_type = kind
    model.normalizer_spec.name = "identity"
    return model.SerializeToString()


def random_state(seed: int = 0, architecture: dict[str, Any] = ARCHITECTURE) -> dict[str, np.ndarray]:
    """Every tensor of the hub's file: as large as they come out of a training, so that scores differ."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, shape in Architecture.of(architecture).shapes.items():
        scale = 1.0 if "layer_norm" in name or len(shape) < 2 else 1.2 * shape[-1] ** -0.5
        values = draw.normal(0, scale, shape)
        found[name] = (1 + 0.1 * values if "layer_norm" in name else values).astype(np.float32)
    return found


def save_small(path: Path) -> dict[str, np.ndarray]:
    """A pretrained file in this project's form; its tensors, the tokenizer's among them."""
    state = random_state() | {"tokenizer.json": np.frombuffer(tokenizer_json().encode(), np.uint8)}
    write_tensors(path, state, {})
    return state


def plain_network(state: dict[str, np.ndarray]) -> T5ForConditionalGeneration:
    """transformers' own network, each table a parameter of its own."""
    network = T5ForConditionalGeneration(
        T5Config(**Architecture.of(ARCHITECTURE).config, decoder_start_token_id=0)
    ).eval()
    tensors = {name: torch.from_numpy(array.copy()) for name, array in state.items() if name != "tokenizer.json"}
    network.lm_head.weight = torch.nn.Parameter(torch.empty_like(tensors["lm_head.weight"]))
    network.load_state_dict(tensors, strict=False)
    return network


def sentences(count: int, choices: int = 3, seed: int = 0, free: bool = False) -> list[Text]:
    """Questions of different lengths, with choices of different lengths."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        some = tuple(" ".join(draw.choice(WORDS, draw.integers(1, 4))) for _ in range(choices))
        text = " ".join(draw.choice(WORDS, draw.integers(2, 20)))
        found.append(Text(text, some, FREE if free else int(draw.integers(choices))))
    return found


def small_examples(folder: Path, *args: Any, **more: Any) -> Texts:
    """The same as a file that is open."""
    write_texts(folder / "examples.safetensors", sentences(*args, **more), {})
    return open_texts(folder / "examples.safetensors")
