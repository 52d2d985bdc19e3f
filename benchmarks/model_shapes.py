"""Checkpoints at true shapes, made of noise: a base, and fine-tuned models of it, as safetensors files on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = dict[str, tuple[int, ...]]
TILE = (1 << 22) + 17
"""Normal numbers that all tensors are cut from, each beginning elsewhere: drawing every value would take an hour."""


def vision_tower(layers: int, width: int, patch: int, positions: int) -> Shapes:
    """transformers' CLIPVisionModel."""
    stem = "vision_model."
    shapes: Shapes = {
        f"{stem}embeddings.class_embedding": (width,),
        f"{stem}embeddings.patch_embedding.weight": (width, 3, patch, patch),
        f"{stem}embeddings.position_embedding.weight": (positions, width),
    }
    for norm in ("pre_layrnorm", "post_layernorm"):
        shapes |= {f"{stem}{norm}.weight": (width,), f"{stem}{norm}.bias": (width,)}
    for layer in range(layers):
        place = f"{stem}encoder.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= {
                f"{place}self_attn.{name}.weight": (width, width),
                f"{place}self_attn.{name}.bias": (width,),
            }
        shapes |= {f"{place}mlp.fc1.weight": (4 * width, width), f"{place}mlp.fc1.bias": (4 * width,)}
        shapes |= {f"{place}mlp.fc2.weight": (width, 4 * width), f"{place}mlp.fc2.bias": (width,)}
        for norm in ("layer_norm1", "layer_norm2"):
            shapes |= {f"{place}{norm}.weight": (width,), f"{place}{norm}.bias": (width,)}
    return shapes


def t5(layers: int) -> Shapes:
    """transformers' T5ForConditionalGeneration, t5-large; as many layers in the encoder as in the decoder."""
    width, inner, heads = 1024, 4096, 16
    shapes: Shapes = {"shared.weight": (32128, width)}
    for side in ("encoder", "decoder"):
        attentions = ["SelfAttention"] if side == "encoder" else ["SelfAttention", "EncDecAttention"]
        for layer in range(layers):
            place = f"{side}.block.{layer}.layer."
            for number, attention in enumerate(attentions):
                shapes |= {f"{place}{number}.{attention}.{name}.weight": (width, width) for name in "qkvo"}
                shapes[f"{place}{number}.layer_norm.weight"] = (width,)
            last = len(attentions)
            shapes[f"{place}{last}.DenseReluDense.wi.weight"] = (inner, width)
            shapes[f"{place}{last}.DenseReluDense.wo.weight"] = (width, inner)
            shapes[f"{place}{last}.layer_norm.weight"] = (width,)
        shapes[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (32, heads)
        shapes[f"{side}.final_layer_norm.weight"] = (width,)
    return shapes


def llama(layers: int) -> Shapes:
    """transformers' LlamaForCausalLM, 7 B; with fewer than its 32 layers as many words fewer, so that the share of
    embeddings stays what it is."""
    width, inner, words = 4096, 11008, 1000 * layers
    shapes: Shapes = {
        "model.embed_tokens.weight": (words, width), "lm_head.weight": (words, width), "model.norm.weight": (width,),
    }  # fmt: skip
    for layer in range(layers):
        place = f"model.layers.{layer}."
        shapes |= {f"{place}self_attn.{name}_proj.weight": (width, width) for name in "qkvo"}
        shapes |= {f"{place}mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        shapes[f"{place}mlp.down_proj.weight"] = (width, inner)
        shapes |= {f"{place}{norm}.weight": (width,) for norm in ("input_layernorm", "post_attention_layernorm")}
    return shapes


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


_POSITIONS = "vision_model.embeddings.position_embedding.weight"
MODELS = (
    Model("vit_b32", "ViT-B/32", 12, lambda n: vision_tower(n, 768, 32, 50), "F32", (8, 14, 20), _POSITIONS),
    Model("vit_l14", "ViT-L/14", 24, lambda n: vision_tower(n, 1024, 14, 257), "F32", (8, 14, 20), _POSITIONS),
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
