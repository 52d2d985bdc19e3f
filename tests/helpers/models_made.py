"""Small models that a few lines of transformers make offline, for the commands on anyone's checkpoints."""

import copy
import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from small_checkpoints import llama
from tallmasks.cli.main import main

TASKS = ("cars", "dtd", "mnist")
NAMED = [word for task in TASKS for word in ("--task", f"{task}=./{task}")]
"""How the commands are told of them, in their folder."""


def make_llamas(folder: Path) -> None:
    """A Llama in bfloat16 in two shards, and three fine-tuned ones whose embeddings nobody moved."""
    model = llama(dtype=torch.bfloat16, vocabulary=96, tied=True)
    model.save_pretrained(folder / "base", max_shard_size="20KB")
    for task in TASKS:
        fine_tuned = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in fine_tuned.named_parameters():
                if "embed" not in name:
                    parameter.add_(0.05 * torch.randn(parameter.shape))
        fine_tuned.save_pretrained(folder / task, max_shard_size="20KB")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """All parameters, as transformers loads them."""
    from transformers import LlamaForCausalLM

    return {name: tensor.detach() for name, tensor in LlamaForCausalLM.from_pretrained(folder).named_parameters()}


@functools.cache
def of_base_and_tasks(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """The weights of `make_llamas`' models as float32, by model and name."""
    return {
        model: {name: tensor.float().numpy() for name, tensor in weights(folder / model).items()}
        for model in ("base", *TASKS)
    }


SMALL = ("cars", "dtd", "x-v0.1", "x-v0.2")
"""The fine-tuned models of `make_small`."""


def make_small(folder: Path) -> None:
    """A base and models of it, each a folder with one file: a counter, and a matrix to which the tasks add 1, 2, ..."""
    from safetensors.numpy import save_file

    for number, name in enumerate(("base", *SMALL)):
        (folder / name).mkdir(parents=True)
        weight = np.arange(64, dtype=np.float32).reshape(8, 8) + number
        save_file({"w.weight": weight, "steps": np.arange(3)}, folder / name / "model.safetensors")


def run(*words: object) -> int:
    """The command `tallmasks`, in this process."""
    return main([str(word) for word in words])


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one-line error of a command that must fail."""
    capsys.readouterr()
    assert run(*words) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")
