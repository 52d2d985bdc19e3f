"""LoRA folders that PEFT wrote, merged by this package and by PEFT itself, which examples/llms locks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import example_libraries
from models_made import run

BY_PEFT = """
import sys
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          T5Config, T5ForConditionalGeneration)

small = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
gpt2 = GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=32, tie_word_embeddings=False)
t5 = T5Config(vocab_size=97, d_model=32, d_kv=8, num_heads=4, d_ff=48, num_layers=2)
of_class, config, targets, more = {
    "gpt2": (GPT2LMHeadModel, gpt2, ["c_attn", "attn.c_proj", "c_fc", "wte", "lm_head"], {"bias": "all"}),
    "llama": (LlamaForCausalLM, LlamaConfig(**small), "all-linear", {"rank_pattern": {"q_proj": 2}}),
    "t5": (T5ForConditionalGeneration, t5, ["q", "v", "wo"], {"use_rslora": True}),
    "bert": (BertForMaskedLM, BertConfig(**small), ["query", "dense"], {"alpha_pattern": {"query": 3}}),
}[sys.argv[1]]
torch.manual_seed(0)
of_class(config).save_pretrained("base")
adapted = get_peft_model(of_class.from_pretrained("base"), LoraConfig(r=4, target_modules=targets, **more))
for parameter in adapted.parameters():
    parameter.data += 0.1 * torch.randn_like(parameter) * parameter.requires_grad
adapted.save_pretrained("lora")
PeftModel.from_pretrained(of_class.from_pretrained("base"), "lora").merge_and_unload().save_pretrained("by_peft")
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    example_libraries.install("llms", folder)
    return folder


@pytest.mark.parametrize("model", ["gpt2", "llama", "t5", "bert"])
def test_a_lora_is_merged_as_by_peft(
    model: str, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would get another model than the one that was trained."""
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(libraries), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", BY_PEFT, model], env=environment, check=True, timeout=600)
    assert run("merge", "--base", "base", "--task", "a=lora", "--method", "weight_averaging", "-o", "merged") == 0
    base, merged, expected = (load_file(f"{folder}/model.safetensors") for folder in ("base", "merged", "by_peft"))
    assert merged.keys() == expected.keys()
    assert any((merged[name] - base[name]).abs().max() > 0.01 for name in merged)
    for name, tensor in expected.items():
        assert (merged[name] - tensor).abs().max() < 1e-5, name
