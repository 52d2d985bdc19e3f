"""Write a small base model and four fine-tuned models, to try the other commands on.

    tallmasks example ./demo
    tallmasks compress --base ./demo/base --task cars=./demo/cars --task dtd=./demo/dtd -o ./bundle

The models are image classifiers (ViT) in the layout of transformers. Their weights are random numbers: the base is
not trained, and each fine-tuned model is the base with random changes and a random head, so accuracies mean nothing.
Nothing is downloaded, and every call writes the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal
from safetensors.numpy import save_file

from tallmasks.io.atomic_files import atomic_path
from tallmasks.io.plain_files import expanded

BASE = ("airplane", "bicycle", "boat", "cat", "chair", "dog", "house", "tree")
TASKS = {
    "cars": ("coupe", "sedan", "van"),
    "dtd": ("banded", "dotted", "striped", "woven"),
    "eurosat": ("forest", "highway", "lake", "pasture", "river"),
    "mnist": tuple("0123456789"),
}
"""Class names by task."""
WIDTH, DEPTH, IMAGE, PATCH = 96, 4, 32, 8
CHANGED = 0.3
"""The fraction of weights that a fine-tuned model changes."""
State = dict[str, NDArray[np.float32]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a new folder for the five models")


def run(arguments: argparse.Namespace) -> int:
    """Write the models and print their sizes."""
    out = Path(expanded(arguments.folder))
    base = _base(np.random.default_rng(0))
    with atomic_path(out, folder=True, new=True) as hidden:
        _save(hidden / "base", base, BASE)
        for seed, (task, classes) in enumerate(TASKS.items(), 1):
            _save(hidden / task, _fine_tuned(base, classes, np.random.default_rng(seed)), classes)
    size = decimal((out / "base" / "model.safetensors").stat().st_size)
    weights = sum(tensor.size for tensor in base.values())
    print(f"{out}: five small ViT classifiers (base, {', '.join(TASKS)}), {weights:,} weights and {size} each")
    print("  random weights with random changes, not trained models: only for trying the commands")
    return 0


def _base(draw: np.random.Generator) -> State:
    """The tensors of ViTForImageClassification, drawn uniformly, with a standard deviation of 0.02 for matrices."""
    state: State = {}
    for name, shape in _shapes(len(BASE)):
        if "layernorm" in name or name.endswith("bias"):
            state[name] = np.full(shape, name.endswith("weight"), np.float32)
        else:
            state[name] = _uniform(draw, shape, 0.02)
    return state


def _fine_tuned(base: State, classes: Sequence[str], draw: np.random.Generator) -> State:
    """The base with some weights changed, and a new head."""
    state: State = {}
    for name, shape in _shapes(len(classes)):
        if name.startswith("classifier"):
            state[name] = _uniform(draw, shape, 0.02)
        else:
            changed = draw.random(shape, np.float32) < CHANGED
            state[name] = np.where(changed, base[name] + _uniform(draw, shape, 0.004), base[name])
    return state


def _uniform(draw: np.random.Generator, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32]:
    """Draw uniform numbers, which are bit-identical on every machine; normal ones are not."""
    return (draw.random(shape, np.float32) - np.float32(0.5)) * np.float32(deviation * sqrt(12))


def _shapes(classes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each tensor, as transformers writes them."""
    yield "vit.embeddings.cls_token", (1, 1, WIDTH)
    yield "vit.embeddings.position_embeddings", (1, (IMAGE // PATCH) ** 2 + 1, WIDTH)
    yield "vit.embeddings.patch_embeddings.projection.weight", (WIDTH, 3, PATCH, PATCH)
    yield "vit.embeddings.patch_embeddings.projection.bias", (WIDTH,)
    square = ("attention.attention.query", "attention.attention.key", "attention.attention.value",
              "attention.output.dense")  # fmt: skip
    sizes = {**dict.fromkeys(square, (WIDTH, WIDTH)), "intermediate.dense": (4 * WIDTH, WIDTH),
             "output.dense": (WIDTH, 4 * WIDTH)}  # fmt: skip
    for layer in range(DEPTH):
        for module, shape in sizes.items():
            yield f"vit.encoder.layer.{layer}.{module}.weight", shape
            yield f"vit.encoder.layer.{layer}.{module}.bias", shape[:1]
        for norm in ("layernorm_before", "layernorm_after"):
            yield from ((f"vit.encoder.layer.{layer}.{norm}.{part}", (WIDTH,)) for part in ("weight", "bias"))
    yield from ((f"vit.layernorm.{part}", (WIDTH,)) for part in ("weight", "bias"))
    yield "classifier.weight", (classes, WIDTH)
    yield "classifier.bias", (classes,)


def _save(folder: Path, state: State, classes: Sequence[str]) -> None:
    config = {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "image_size": IMAGE,
        "patch_size": PATCH,
        "hidden_size": WIDTH,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": 4,
        "intermediate_size": 4 * WIDTH,
        "id2label": dict(enumerate(classes)),
        "label2id": {name: number for number, name in enumerate(classes)},
    }
    folder.mkdir()
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
