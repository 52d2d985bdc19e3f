"""Pretraining of the tiny models, reduced to a few seconds."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from conftest import shipped_params
from reproduction.models.language.text_tokenizer import TextTokenizer
from reproduction.models.t5.t5_architectures import Architecture
from reproduction.models.t5.t5_network import network_of
from tallmasks.io.tensor_files import open_tensors
from tiny_worlds.pretraining.tiny_t5 import initial, pretrain_tiny_t5
from tiny_worlds.written.lexicon import tokenizer_json
from tiny_worlds.written.world import DEED_WORDS

SPEC = shipped_params()["models"]["tiny_t5"]
ARCHITECTURE = SPEC["architecture"] = SPEC["architecture"] | {"d_model": 16, "d_ff": 24, "num_heads": 2}
SPEC["pretraining"] |= {"steps": 30, "batch_size": 16, "learning_rate": 0.01, "warmup_steps": 5}


def test_pretraining_learns_and_records_its_recipe(tmp_path: Path) -> None:
    """The shipped weights could be no better than random ones, lack a tokenizer, or not be reproducible."""
    paths = [tmp_path / "first", tmp_path / "again"]
    for path in paths:
        pretrain_tiny_t5(SPEC, path)
    weights, again = map(load_file, paths)
    assert weights.keys() == again.keys() and all(torch.equal(again[name], weights[name]) for name in weights)
    metadata = open_tensors(paths[0]).metadata
    assert metadata["format"] == "tallmasks/pretrained/1" and json.loads(metadata["recipe"]) == SPEC
    tokenizer = weights.pop("tokenizer.json")
    assert tokenizer.dtype == torch.uint8 and bytes(tokenizer.tolist()).decode() == tokenizer_json()
    assert not torch.equal(weights["shared.weight"], weights["lm_head.weight"])
    numbers = TextTokenizer(tokenizer_json().encode(), paths[0], len(weights["shared.weight"]))
    read, write = torch.tensor(numbers([f"aldan after {DEED_WORDS[0]}"])), torch.zeros(1, 1).long()
    with torch.no_grad():
        trained, untrained = network_of(Architecture.of(ARCHITECTURE), weights), initial(ARCHITECTURE, 0)
        said, before = (
            network(input_ids=read, decoder_input_ids=write).logits.softmax(dim=-1) for network in (trained, untrained)
        )
    assert said.max() > 2 * before.max()
