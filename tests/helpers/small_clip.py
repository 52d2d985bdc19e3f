"""A very small CLIP with random weights."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from reproduction.models.clip import network as clip
from tiny_worlds.drawn import TASKS

ARCHITECTURE: dict[str, Any] = {
    "embed_dim": 16,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
    "text_cfg": {"context_length": 16, "width": 16, "heads": 2, "layers": 1},
}
SPEC: dict[str, Any] = {
    "family": "clip",
    "architecture": {name: value for name, value in ARCHITECTURE.items() if name != "quick_gelu"},
}


def save_random(path: Path) -> dict[str, torch.Tensor]:
    """A pretrained file with random weights that knows the prompts of two tasks."""
    prompts = [p for name in ("cars", "mnist") for c in range(8) for p in TASKS[name].prompts(c)]
    vocabulary = clip.vocabulary_of(prompts, 16)
    torch.manual_seed(0)
    network = clip.build(SPEC["architecture"], len(vocabulary))
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    tensors[clip.VOCABULARY] = torch.tensor(vocabulary)
    save_file(tensors, path)
    return tensors


def scramble(network: torch.nn.Module, seed: int) -> None:
    """Random weights everywhere, biases and norms included, which a fresh network has at 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
