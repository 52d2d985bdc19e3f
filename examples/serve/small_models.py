"""A small text classifier, models of several tasks, and their bundle with the base in it; to try the server with.

    python examples/serve/small_models.py FOLDER [--tasks 8] [--layers 2] [--width 64]

The weights are random: the base's by transformers, each task's the base's with noise.  The tokenizer knows the words w0
to w999.  Writes FOLDER/base, FOLDER/models/<task> and FOLDER/bundle.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from tallmasks.commands.main import main as tallmasks_command

WORDS = 1000


def write(folder: Path, tasks: int, layers: int, width: int) -> None:
    """Write all of it."""
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *(f"w{number}" for number in range(WORDS))])}
    tokens = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokens.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="[PAD]", unk_token="[UNK]")
    size = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 4 * width}
    heads = max(width // 64, 2)
    torch.manual_seed(0)
    config = BertConfig(**size, vocab_size=len(words), num_attention_heads=heads, num_labels=4)
    model = BertForSequenceClassification(config)
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    theta = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = []
    for number in range(tasks):
        for name, parameter in model.named_parameters():
            parameter.data = theta[name] + 0.02 * torch.randn_like(theta[name])
        task = f"task{number}"
        model.save_pretrained(folder / "models" / task)
        given += ["--task", f"{task}={folder / 'models' / task}"]
    bundle = ["--include-base", "--dtype", "bfloat16", "-o", str(folder / "bundle")]
    if status := tallmasks_command(["compress", "--base", str(folder / "base"), *given, *bundle]):
        raise SystemExit(status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    write(arguments.folder, arguments.tasks, arguments.layers, arguments.width)
