"""Computes linear layers on a CPU as 1x1 convolutions, for which torch uses oneDNN instead of MKL.

On processors that are not Intel's, MKL reaches about half of the peak speed; oneDNN uses the widest instructions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def use_onednn(module: nn.Module) -> None:
    """Replace the classes of linear and self-attention layers in `module`; results are the same up to rounding.

    Parameters stay the same objects.  Every layer is called as a module, so that hooks run.
    """
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = _Linear
        elif type(layer) is nn.MultiheadAttention and layer.batch_first and layer.in_proj_weight is not None:
            layer.__class__ = _SelfAttention
            layer.out_proj.__class__ = _Linear  # type: ignore[assignment]


def linear(tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`functional.linear`; inputs [N, T, C] on a CPU are computed as a convolution."""
    if tokens.ndim != 3 or tokens.device.type != "cpu":
        return functional.linear(tokens, weight, bias)
    # a view with channels last, the layout that oneDNN needs
    pixels = tokens.transpose(1, 2).unsqueeze(3)
    return functional.conv2d(pixels, weight[:, :, None, None], bias).squeeze(3).transpose(1, 2)


class _Linear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.weight, self.bias)


class _SelfAttention(nn.MultiheadAttention):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **more: Any) -> Any:
        mask = more.get("attn_mask")
        wanted = {name: value for name, value in more.items() if name != "attn_mask"}
        plain = key is query is value and query.ndim == 3 and not rest and wanted == {"need_weights": False}
        if not plain or mask is not None or (self.training and self.dropout):
            return super().forward(query, key, value, *rest, **more)
        count, length, width = query.shape
        projected = linear(query, self.in_proj_weight, self.in_proj_bias)
        q, k, v = projected.view(count, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out_proj(mixed.reshape(count, length, width)), None
