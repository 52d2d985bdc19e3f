"""Pretraining of the tiny T5."""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from conftest import shipped_params
from tallmasks.models.t5.t5_architectures import Architecture
from tallmasks.models.t5.t5_loading import build
from tallmasks.tasks.written.lexicon import tokenizer_json
from tallmasks.tasks.written.world import DEED_WORDS
from tallmasks.training.tiny_t5_pretraining import Tokenize, initial, pretrain_tiny_t5

SPEC = shipped_params()["models"]["tiny_t5"]
ARCHITECTURE = SPEC["architecture"] = SPEC["architecture"] | {"d_model": 16, "d_ff": 24, "num_heads": 2}
SPEC["pretraining"] |= {"steps": 30, "batch_size": 16, "learning_rate": 0.01, "warmup_steps": 5}


def test_pretraining_learns_and_its_file_says_how(tmp_path: Path) -> None:
    """Without it the shipped weights could be no better than random ones, lack a tokenizer, or not be made again."""
    path = tmp_path / "tiny_t5.safetensors"
    pretrain_tiny_t5(SPEC, path)
    weights = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "tallmasks/pretrained/1" and json.loads(metadata["recipe"]) == SPEC
    tokenizer = weights.pop("tokenizer.json")
    assert tokenizer.dtype == torch.uint8 and bytes(tokenizer.tolist()).decode() == tokenizer_json()
    assert not torch.equal(weights["shared.weight"], weights["lm_head.weight"])
    read, write = Tokenize()([f"aldan after {DEED_WORDS[0]}"]), torch.zeros(1, 1).long()
    with torch.no_grad():
        trained, untrained = build(Architecture.of(ARCHITECTURE), weights), initial(ARCHITECTURE, 0)
        said, before = (
            network(input_ids=read, decoder_input_ids=write).logits.softmax(dim=-1) for network in (trained, untrained)
        )
    assert said.max() > 2 * before.max()
    pretrain_tiny_t5(SPEC, tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() - {"tokenizer.json"} == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
