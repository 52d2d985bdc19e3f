"""Unpack masks with torch, on their own device."""

from __future__ import annotations

import torch


def unpacked(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [n] -> bool [8 n]: bit i of byte j, from the lowest, is value 8 j + i."""
    bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)
    return (bits & 1).bool().flatten()
