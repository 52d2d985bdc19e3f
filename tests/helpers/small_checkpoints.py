"""Small models in the formats that people save."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint


def llama(seed: int = 0, dtype: torch.dtype = torch.float32, vocabulary: int = 97, tied: bool = False):
    """A Llama of transformers' with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).to(dtype)


def saved_llama(folder: Path, shards: str = "5GB", **settings) -> Path:
    """Its folder, with a tokenizer's file and a card beside it."""
    llama(**settings).save_pretrained(folder, max_shard_size=shards)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "README.md").write_text("The base's card.")
    return folder


def state(seed: int = 0, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    """A state dict with every dtype of floats, a counter, an empty tensor and a scalar."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "b.weight": torch.randn(7, 5, generator=draw),
        "a.half": torch.randn(33, generator=draw).half(),
        "c.brain": torch.randn(3, 4, 2, generator=draw).bfloat16(),
        "d.double": torch.randn(9, generator=draw).double(),
        "steps": torch.tensor([1, 2, 3]),
        "nothing": torch.zeros(0, 4),
        "scale": torch.tensor(0.5),
        **more,
    }


def file_of(folder: Path, tensors: dict[str, torch.Tensor], name: str = "model.safetensors", **metadata: str) -> Path:
    """A safetensors file, or one of torch.save's, as its name says."""
    folder.mkdir(exist_ok=True, parents=True)
    if name.endswith(".safetensors"):
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / name, metadata or None)
    else:
        torch.save(tensors, folder / name)
    return folder / name


def whole(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """All values of a tensor in its shape, read as two pieces."""
    info = checkpoint.info(name)
    middle = info.size // 3
    pieces = [checkpoint.piece(name, *part) for part in ((0, middle), (middle, info.size))]
    return np.concatenate(pieces).reshape(info.shape)


def refusal(act) -> str:
    """The error message of `act`, which must be one line."""
    with pytest.raises(TallmasksError) as caught:
        act()
    said = str(caught.value)
    assert "\n" not in said and len(said) < 900, said
    return said


def lora(folder: Path, tensors: dict[str, torch.Tensor], name: str = "adapter_model.safetensors", **config) -> Path:
    """A folder as PEFT writes it."""
    file_of(folder, {f"base_model.model.{key}": tensor for key, tensor in tensors.items()}, name)
    facts = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "init_lora_weights": True, **config}
    (folder / "adapter_config.json").write_text(json.dumps(facts))
    return folder


def bloom(folder: Path, tensors: dict[str, torch.Tensor], name: str = "model.safetensors", **settings) -> Path:
    """A folder with a BLOOM's configuration; transformers knows that its head is tied to its embedding."""
    file_of(folder, tensors, name)
    facts = {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_layer": 1, "n_head": 1, **settings}
    (folder / "config.json").write_text(json.dumps(facts))
    return folder
