"""Checkpoints of noise with the shapes of real models: a base, and fine-tuned models of it, as safetensors files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

Shapes = dict[str, tuple[int, ...]]
TILE = (1 << 22) + 17
"""Normal numbers that all tensors are cut from, each beginning elsewhere: drawing every value would take an hour."""


def shapes_of(config: PretrainedConfig, model: type[PreTrainedModel]) -> Shapes:
    """The shapes of a model's parameters, without its weights."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in model(config).named_parameters()}


def vision_tower(layers: int, width: int, patch: int) -> Shapes:
    config = CLIPVisionConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=width // 64,
        patch_size=patch,
    )  # fmt: skip
    return shapes_of(config, CLIPVisionModel)


def t5(layers: int) -> Shapes:
    """t5-large; as many layers in the encoder as in the decoder."""
    config = T5Config(d_model=1024, d_kv=64, d_ff=4096, num_heads=16, num_layers=layers, num_decoder_layers=layers)
    return shapes_of(config, T5ForConditionalGeneration)


def llama(layers: int) -> Shapes:
    """7 B; with fewer than its 32 layers as many words fewer, so that the share of embeddings stays what it is."""
    return shapes_of(LlamaConfig(num_hidden_layers=layers, vocab_size=1000 * layers), LlamaForCausalLM)


@dataclass(frozen=True)
class Model:
    """A model that is measured.

    Attributes:
        name, title: in the table, and for people.
        layers: how many it has.
        shapes: of its tensors, for a number of layers.
        dtype: F32 or BF16, of its files.
        tasks: how many fine-tuned models are merged, each for itself.
        embedding: a tensor that every second task leaves as it was.
    """

    name: str
    title: str
    layers: int
    shapes: Callable[[int], Shapes]
    dtype: str
    tasks: tuple[int, ...]
    embedding: str

    def parameters(self, layers: int) -> int:
        """P of so many layers."""
        return sum(map(prod, self.shapes(layers).values()))


_POSITIONS = "embeddings.position_embedding.weight"
MODELS = (
    Model("vit_b32", "ViT-B/32", 12, lambda n: vision_tower(n, 768, 32), "F32", (8, 14, 20), _POSITIONS),
    Model("vit_l14", "ViT-L/14", 24, lambda n: vision_tower(n, 1024, 14), "F32", (8, 14, 20), _POSITIONS),
    Model("t5_large", "T5-large", 24, t5, "BF16", (11,), "shared.weight"),
    Model("llama_7b", "Llama 7 B", 32, llama, "BF16", (4,), "model.embed_tokens.weight"),
)


def blocks(parameters: int) -> Shapes:
    """So many values in matrices of four million and what is left."""
    whole, left = divmod(parameters, 1 << 22)
    shapes: Shapes = {f"layers.{number}.weight": (2048, 2048) for number in range(whole)}
    return shapes | ({"last.weight": (left,)} if left else {})


def write_checkpoints(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str, tasks: int, embedding: str
) -> tuple[Path, dict[str, Path]]:
    """A base and so many tasks' models: base + noise a twentieth as large; the paths of all."""
    draw = np.random.default_rng(0)
    tiles = [draw.standard_normal(TILE, np.float32) * np.float32(scale) for scale in (0.02, 0.001)]
    base = folder / "base.safetensors"
    _write(base, shapes, dtype, lambda name, at: tiles[0][at])
    paths = {f"task{number}": folder / f"task{number}.safetensors" for number in range(tasks)}
    for number, path in enumerate(paths.values()):

        def values(name: str, at: slice, number: int = number) -> NDArray[np.float32]:
            if name == embedding and number % 2:
                return tiles[0][at]
            moved = (at.start + 101_117 * (number + 1)) % TILE
            size = at.stop - at.start
            first = tiles[1][moved : moved + size]
            noise = first if first.size == size else np.concatenate([first, tiles[1][: size - first.size]])
            return tiles[0][at] + noise

        _write(path, shapes, dtype, values)
    return base, paths


def header_of(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> bytes:
    """What a safetensors file of F32 or BF16 begins with; the tensors follow in order of names."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end, width = 0, 4 if dtype == "F32" else 2
    for name in sorted(shapes):
        start, end = end, end + prod(shapes[name]) * width
        header[name] = {"dtype": dtype, "shape": list(shapes[name]), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text


def _write(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str, values: Callable[[str, slice], NDArray[np.float32]]
) -> None:
    """A safetensors file, in order of names, a tile at a time."""
    with path.open("wb") as file:
        file.write(header_of(shapes, dtype))
        place = 0
        for name in sorted(shapes):
            left = prod(shapes[name])
            while left:
                at = slice(place, min(place + left, TILE))
                part = values(name, at)
                # upper halves: cut off instead of rounded, which noise does not mind
                file.write(part.data if dtype == "F32" else part.view(np.uint16)[1::2].tobytes())
                left -= at.stop - at.start
                place = at.stop % TILE
