"""A GPU that is not there: torch's fake tensors, which have shapes and places and no values.

An operation on tensors of two devices fails as on a GPU.  What reads values gets ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from reproduction.evaluation import evaluator
from reproduction.models import cuda, prefetching
from reproduction.models.clip import network
from reproduction.models.language.text_tokenizer import stored_tokenizer
from reproduction.models.pretrained_files import read_pretrained
from reproduction.models.t5 import t5_network
from reproduction.training import finetuning

NUMBERS = {"item": None, "__bool__": bool, "__int__": int, "__index__": int, "__float__": float}


class Ones(TorchFunctionMode):
    """Replaces the operations that fake tensors cannot do."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "pin_memory":
            assert args[0].device.type == "cpu"
            return args[0]
        if function is torch.tensor:  # the values of small ones would follow it to the GPU
            made = function(*args, dtype=(kwargs or {}).get("dtype"))
            return torch.empty(made.shape, dtype=made.dtype, device=(kwargs or {}).get("device"))
        if name == "backward":
            return _give_gradients(args[0])
        if args and isinstance(args[0], FakeTensor):
            if name in NUMBERS:
                kind = NUMBERS[name] or (float if args[0].is_floating_point() else int)
                return kind(1)
            if name == "numpy":
                assert args[0].device.type == "cpu", "a GPU's tensor is no array"
                return np.ones(tuple(args[0].shape), str(args[0].dtype).removeprefix("torch."))
        return function(*args, **(kwargs or {}))


def _give_gradients(loss: torch.Tensor) -> None:
    """A gradient beside every parameter that a loss depends on: torch's backward pass needs a driver."""
    waiting, done = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in done:
            continue
        done.add(node)
        if hasattr(node, "variable"):
            node.variable.grad = torch.empty_like(node.variable)
        waiting += [following for following, _ in node.next_functions]


def _read(path: Path) -> dict[str, torch.Tensor]:
    """A file's tensors have values, and are on the CPU."""
    with unset_fake_temporarily():
        return read_pretrained(path)


def _stored_tokenizer(*args: Any) -> Any:
    with unset_fake_temporarily():
        return stored_tokenizer(*args)


def _to(module: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """`Module.to`, which cannot replace fake parameters that somebody else refers to."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = torch.nn.Parameter(parameter.detach().to(device), parameter.requires_grad)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else buffer.to(device)
    return module


@contextlib.contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make torch see a GPU with tensors that have no values."""
    monkeypatch.setattr(cuda, "choose", lambda wanted: torch.device("cuda"))
    monkeypatch.setattr(cuda, "make_repeatable", lambda tf32=False: None)
    monkeypatch.setattr(cuda, "free_bytes", lambda device: 10**9)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "default_generators", (torch.default_generator,))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(t5_network, "stored_tokenizer", _stored_tokenizer)
    monkeypatch.setattr(torch.nn.Module, "to", _to)
    here = torch.device("cpu")  # modes are a thread's own
    for module in (finetuning, evaluator):
        monkeypatch.setattr(module, "prefetched", lambda prepared, device: prefetching.prefetched(prepared, here))
    for module in (network, t5_network):
        monkeypatch.setattr(module, "read_pretrained", _read)
    with FakeTensorMode(allow_non_fake_inputs=True), Ones():
        yield
