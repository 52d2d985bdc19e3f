"""The heads of classifiers, in checkpoints and in memory."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from tallmasks.io.tensor_files import open_tensors

if TYPE_CHECKING:
    import torch

CLASS_VECTORS = "head"
"""Name of the tensor of a head with one vector per class."""
HEAD = "head.safetensors"
"""Name of the uint8 tensor in a checkpoint that contains its trained head, as a safetensors file.

Only the float tensors of a checkpoint are merged.
"""
TRAINED = "trained"
"""`heads` of params.yaml, for heads that are trained with the body."""


def packed(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Arrays by name as the bytes of a safetensors file."""
    return np.frombuffer(save(dict(arrays)), np.uint8)


def unpacked_head(checkpoint: Path) -> dict[str, NDArray[np.float32]]:
    return load(open_tensors(checkpoint).read(HEAD).tobytes())


def head_parameters(network: Any) -> dict[str, torch.nn.Parameter]:
    """The parameters outside the base model by transformers' names; none if the network is the base model."""
    body = {id(parameter) for parameter in network.base_model.parameters()}
    return {name: parameter for name, parameter in network.named_parameters() if id(parameter) not in body}


def start_head(network: Any, seed: str) -> None:
    """Initialise the head as transformers does, with random numbers of its own."""
    import torch

    body = set(network.base_model.modules())
    with torch.random.fork_rng([]):
        torch.manual_seed(zlib.crc32(seed.encode()))
        for module in network.modules():
            if module is not network and module not in body:
                network._init_weights(module)
