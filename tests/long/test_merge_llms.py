"""docs/gpu.md: its commands for language models, on three tiny Llamas; LoRA folders that PEFT wrote.

lm_eval and PEFT are those of the lock file in examples/llms.
"""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import example_libraries
from conftest import ROOT
from tallmasks.cli.main import main

NAMES = {"instruct": "sums", "code": "differences", "math": "products"}
LOCAL = {
    "meta-llama/Llama-3.2-3B": "tiny/base", "MergeBench/Llama-3.2-3B_instruction": "tiny/sums",
    "MergeBench/Llama-3.2-3B_coding": "tiny/differences", "MergeBench/Llama-3.2-3B_math": "tiny/products",
    "ifeval": "sums", "mbpp": "differences", "gsm8k_cot": "products",
}  # fmt: skip
"""What stands in the place of the page's models and tasks."""


def run(folder: Path, environment: dict[str, str], words: list[str]) -> None:
    programs = {"tallmasks": [sys.executable, "-m", "tallmasks.cli.main"], ".venv/bin/python": [sys.executable]}
    words = [re.sub(r"(^| )examples/", rf"\1{ROOT}/examples/", word) for word in words]
    words = [words[0], *(word.replace(".venv/bin/python", sys.executable) for word in words[1:])]
    command = [*programs[words[0]], *words[1:]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    example_libraries.install("llms", folder)
    return folder


def test_the_commands_of_the_page_merge_and_measure(libraries: Path, tmp_path: Path) -> None:
    """A reader would copy a line that fails after hours of download, or get another model's scores."""
    search = os.pathsep.join([str(ROOT / "src"), str(libraries)])
    environment = {**os.environ, "PYTHONPATH": search, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    section = (ROOT / "docs/gpu.md").read_text().partition("## Merge language models")[2].partition("\n## ")[0]
    main_block, tiny_block = re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)
    for block in (tiny_block, main_block):
        for line in block.replace("\\\n", " ").splitlines():
            words = []
            for word in shlex.split(line):
                name, equals, value = word.rpartition("=")
                words.append(name + equals + LOCAL.get(value, value))
            if words[0] not in ("make", "source"):
                run(tmp_path, environment, words)

    with (tmp_path / "results.csv").open() as file:
        values = {(row["model"], row["task"]): float(row["value"]) for row in csv.DictReader(file)}
    assert values.keys() == {(model, task) for model in ("base", "merged", *NAMES) for task in NAMES.values()}
    for model, task in NAMES.items():
        assert values[model, task] > values["base", task]


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


@pytest.mark.parametrize("model", ["gpt2", "llama", "t5", "bert"])
def test_a_lora_is_merged_as_by_peft(
    model: str, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would get another model than the one that was trained."""
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(libraries), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", BY_PEFT, model], env=environment, check=True, timeout=600)
    assert main(["merge", "--base", "base", "--task", "a=lora", "--method", "weight_averaging", "-o", "merged"]) == 0
    base, merged, expected = (load_file(f"{folder}/model.safetensors") for folder in ("base", "merged", "by_peft"))
    assert merged.keys() == expected.keys()
    assert any((merged[name] - base[name]).abs().max() > 0.01 for name in merged)
    for name, tensor in expected.items():
        assert (merged[name] - tensor).abs().max() < 1e-5, name


OF_PEFT = """
import copy, re, sys
from pathlib import Path
import torch, transformers
from peft import PeftModel
from tallmasks.cli.main import main

small = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
gpt2 = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
t5 = {"vocab_size": 97, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2}
vit = {**small, "image_size": 8, "patch_size": 4}
qwen = {**small, "num_key_value_heads": 2, "tie_word_embeddings": True}
name, settings = {
    "llama": ("LlamaForCausalLM", small), "qwen": ("Qwen2ForCausalLM", qwen),
    "bert": ("BertForSequenceClassification", small), "vit": ("ViTForImageClassification", vit),
    "t5": ("T5ForConditionalGeneration", t5), "gpt2": ("GPT2LMHeadModel", gpt2),
}[sys.argv[1]]
kind = getattr(transformers, name)
torch.manual_seed(0)
base = kind(kind.config_class(**settings)).eval()
base.save_pretrained("base")
task = copy.deepcopy(base)
for parameter in task.parameters():
    parameter.data += 0.05 * torch.randn_like(parameter)
task.config.id2label = {0: "yes", 1: "no"}
if task.can_generate():
    task.generation_config.eos_token_id = 7
task.save_pretrained("task")
words = "merge --base base --task x=task --method weight_averaging --as-lora 4".split()
words += ["--heads", "classifier*"] if hasattr(task, "classifier") else []


def code_of(folder):
    blocks = re.findall("```python\\n(.*?)```", Path(folder, "README.md").read_text(), re.S)
    return [block.replace("<this folder>", folder) for block in blocks]


assert main([*words, "-o", "lora"]) == 0
names = {"PeftModel": PeftModel, kind.__name__: kind}
names |= {name: getattr(transformers, name) for name in ("AutoConfig", "GenerationConfig")}
by_peft = eval(code_of("lora")[0], names).eval()
assert not task.can_generate() or by_peft.generation_config.eos_token_id == 7

expected, of_task = copy.deepcopy(base), dict(task.named_modules())
adapted = {key.split(".lora_")[0] for key in by_peft.state_dict() if ".lora_" in key}
for module, layer in expected.named_modules():
    if f"base_model.model.{module}" in adapted:
        left, values, right = torch.linalg.svd(of_task[module].weight - layer.weight, full_matrices=False)
        layer.weight.data += left[:, :4] * values[:4] @ right[:4]
    elif module == "classifier":
        layer.load_state_dict(of_task[module].state_dict())
assert len(adapted) >= 8
ids = torch.randint(3, 97, (2, 7))
inputs = {"pixel_values": torch.randn(2, 3, 8, 8)} if name.startswith("ViT") else {"input_ids": ids}
inputs |= {"decoder_input_ids": ids} if name.startswith("T5") else {}
with torch.no_grad():
    before, wanted, found = (model(**inputs).logits for model in (base, expected, by_peft))
assert (found - wanted).abs().max() < 1e-4 < 0.01 < (wanted - before).abs().max()
if hasattr(task, "classifier"):
    assert by_peft.config.id2label == task.config.id2label != base.config.id2label
    assert main([*words, "--task", "y=task", "-o", "two"]) == 0
    exec(code_of("two")[1], names)
    assert names["model"].config.id2label == task.config.id2label
    assert (names["model"].eval()(**inputs).logits - wanted).abs().max() < 1e-4
"""


@pytest.mark.parametrize("model", ["llama", "qwen", "bert", "vit", "t5", "gpt2"])
def test_peft_computes_the_base_plus_the_truncated_change(model: str, libraries: Path, tmp_path: Path) -> None:
    """A written LoRA would be loaded at another layer, at another strength, transposed, or not at all."""
    search = os.pathsep.join([str(ROOT / "src"), str(libraries)])
    environment = {**os.environ, "PYTHONPATH": search, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", OF_PEFT, model], env=environment, check=True, timeout=600, cwd=tmp_path)
