"""Pretraining of the tiny T5."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import T5Config, T5ForConditionalGeneration

from tallmasks.tasks.written.lexicon import lexicon, tokenizer_json
from tallmasks.tasks.written.world import DEED_WORDS
from tallmasks.training.plain_t5 import PlainT5
from tallmasks.training.tiny_t5_pretraining import Tokenize, pretrain_tiny_t5

ARCHITECTURE: dict[str, Any] = {
    "vocab_size": len(lexicon()), "d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2,
    "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16,
}  # fmt: skip
SPEC: dict[str, Any] = {
    "architecture": ARCHITECTURE,
    "pretraining": {
        "problem_share": 0.5, "gap_share": 0.5, "steps": 30, "batch_size": 16, "learning_rate": 0.01, "warmup_steps": 5,
        "decay_share": 0.5, "weight_decay": 0.01, "betas": [0.9, 0.98], "clip_norm": 1.0, "seed": 0,
    },
}  # fmt: skip


def theirs(weights: dict[str, torch.Tensor]) -> T5ForConditionalGeneration:
    """transformers' network with the same weights."""
    network = T5ForConditionalGeneration(T5Config(**ARCHITECTURE, tie_word_embeddings=False))  # type: ignore[call-arg]
    network.lm_head.weight = torch.nn.Parameter(torch.empty_like(network.lm_head.weight))
    missing, unexpected = network.load_state_dict(weights, strict=False)
    assert set(missing) <= {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} and not unexpected
    return network.eval()


def test_plain_t5_is_transformers_t5() -> None:
    """Without it the shipped weights would be those of another network than the family's."""
    plain = PlainT5(ARCHITECTURE, 3)
    with torch.no_grad():
        plain.flat += 0.1 * torch.randn(plain.flat.shape, generator=torch.Generator().manual_seed(0))
    read = torch.randint(3, 100, (5, 13), generator=torch.Generator().manual_seed(1))
    read[2, 6:] = read[4, 9:] = 0
    write = torch.randint(3, 100, (5, 12), generator=torch.Generator().manual_seed(2))
    write[:, 0] = 0
    with torch.no_grad():
        mask = (read != 0).long()
        network = theirs({name: tensor.detach() for name, tensor in plain.tensors.items()})
        expected = network(input_ids=read, attention_mask=mask, decoder_input_ids=write).logits
        torch.testing.assert_close(plain.logits(read, write), expected, atol=1e-4, rtol=1e-4)


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
        said = theirs(weights)(input_ids=read, decoder_input_ids=write).logits.softmax(dim=-1)
        before = PlainT5(ARCHITECTURE, 0).logits(read, write).softmax(dim=-1)
    assert said.max() > 2 * before.max()
    pretrain_tiny_t5(SPEC, tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() - {"tokenizer.json"} == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
