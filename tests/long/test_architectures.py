"""The architectures that the README names, each as a small model of a class of transformers."""

import re
from pathlib import Path

import pytest
import torch
import transformers

import tallmasks
from conftest import ROOT
from small_models import CLASSES, IMAGES, SEQUENCES, SIZE, WORDS, moved
from tallmasks.cli.main import main

TEXT = {**SIZE, **WORDS}
GROUPED = {**TEXT, "num_key_value_heads": 1}
WITH_HEADS = {**GROUPED, "head_dim": 8}
VISION = {**SIZE, **IMAGES}
FAMILIES = {
    "Llama": ("LlamaForCausalLM", CLASSES["LlamaForCausalLM"]),
    "Mistral": ("MistralForCausalLM", WITH_HEADS),
    "Mixtral": ("MixtralForCausalLM", CLASSES["MixtralForCausalLM"]),
    "Qwen2": ("Qwen2ForCausalLM", GROUPED),
    "Qwen2-MoE": ("Qwen2MoeForCausalLM", CLASSES["Qwen2MoeForCausalLM"]),
    "Qwen3": ("Qwen3ForCausalLM", WITH_HEADS),
    "Qwen3.5": (
        "Qwen3_5ForCausalLM",
        {
            **WITH_HEADS,
            **{f"linear_{what}_head_dim": 8 for what in ("key", "value")},
            **{f"linear_num_{what}_heads": 2 for what in ("key", "value")},
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "GLM-4 MoE": (
        "Glm4MoeForCausalLM",
        {
            **WITH_HEADS,
            "moe_intermediate_size": 16,
            "n_routed_experts": 2,
            "num_experts_per_tok": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "Gemma 2": ("Gemma2ForCausalLM", WITH_HEADS),
    "Gemma 3": ("Gemma3ForCausalLM", WITH_HEADS),
    "Phi-3": ("Phi3ForCausalLM", {**GROUPED, "pad_token_id": 0}),
    "OLMo 2": ("Olmo2ForCausalLM", {**GROUPED, "pad_token_id": 0}),
    "Falcon": ("FalconForCausalLM", TEXT),
    "OPT": ("OPTForCausalLM", {**TEXT, "ffn_dim": 16, "word_embed_proj_dim": 16}),
    "BLOOM": ("BloomForCausalLM", {"vocab_size": 20, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "GPT-2": ("GPT2LMHeadModel", CLASSES["GPT2LMHeadModel"]),
    "GPT-J": (
        "GPTJForCausalLM",
        {"n_embd": 16, "n_layer": 1, "n_head": 2, "rotary_dim": 4, "n_positions": 16, "vocab_size": 20},
    ),
    "GPT-NeoX": ("GPTNeoXForCausalLM", CLASSES["GPTNeoXForCausalLM"]),
    "StableLM": ("StableLmForCausalLM", GROUPED),
    "Cohere": ("CohereForCausalLM", GROUPED),
    "Granite": ("GraniteForCausalLM", GROUPED),
    "Mamba": ("MambaForCausalLM", {"vocab_size": 20, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1}),
    "BERT": ("BertForMaskedLM", CLASSES["BertForMaskedLM"]),
    "RoBERTa": ("RobertaForSequenceClassification", {**TEXT, "pad_token_id": 1}),
    "XLM-R": ("XLMRobertaForSequenceClassification", {**TEXT, "pad_token_id": 1}),
    "DistilBERT": (
        "DistilBertForSequenceClassification",
        {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, **WORDS},
    ),
    "ELECTRA": ("ElectraForSequenceClassification", {**TEXT, "embedding_size": 16}),
    "DeBERTa-v2": ("DebertaV2ForSequenceClassification", TEXT),
    "ALBERT": ("AlbertForSequenceClassification", {**TEXT, "embedding_size": 16}),
    "MPNet": ("MPNetForSequenceClassification", TEXT),
    "ModernBERT": ("ModernBertForSequenceClassification", {**TEXT, "pad_token_id": 0}),
    "ESM": (
        "EsmForSequenceClassification",
        {**SIZE, "vocab_size": 9, "pad_token_id": 1, "position_embedding_type": "rotary"},
    ),
    "T5": ("T5ForConditionalGeneration", CLASSES["T5ForConditionalGeneration"]),
    "BART": ("BartForConditionalGeneration", SEQUENCES),
    "mBART": ("MBartForConditionalGeneration", SEQUENCES),
    "Pegasus": ("PegasusForConditionalGeneration", SEQUENCES),
    "Marian": ("MarianMTModel", SEQUENCES),
    "Whisper": (
        "WhisperForConditionalGeneration",
        {**SEQUENCES, "decoder_start_token_id": 1, "max_source_positions": 8, "max_target_positions": 8},
    ),
    "Wav2Vec2": ("Wav2Vec2ForCTC", CLASSES["Wav2Vec2ForCTC"]),
    "HuBERT": ("HubertForCTC", CLASSES["Wav2Vec2ForCTC"]),
    "ViT": ("ViTForImageClassification", VISION),
    "DeiT": ("DeiTForImageClassification", VISION),
    "BEiT": ("BeitForImageClassification", VISION),
    "DINOv2": ("Dinov2ForImageClassification", VISION),
    "DINOv2 with registers": ("Dinov2WithRegistersForImageClassification", VISION),
    "Swin": ("SwinForImageClassification", CLASSES["SwinModel"]),
    "Swin v2": (
        "Swinv2ForImageClassification",
        {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 1], "window_size": 4},
    ),
    "ConvNeXt": (
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 8], "depths": [1, 1], "num_stages": 2, "image_size": 16, "patch_size": 2},
    ),
    "EfficientNet": (
        "EfficientNetForImageClassification",
        {
            **dict.fromkeys(("width_coefficient", "depth_coefficient"), 0.1),
            **{key: [8] for key in ("in_channels", "out_channels")},
            **{key: [1] for key in ("strides", "num_block_repeats", "expand_ratios")},
            "image_size": 16,
            "hidden_dim": 8,
            "kernel_sizes": [3],
        },
    ),
    "ResNet": ("ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}),
    "CLIP": ("CLIPVisionModelWithProjection", {**VISION, "projection_dim": 8}),
    "SigLIP": ("SiglipVisionModel", VISION),
    "LLaVA": (
        "LlavaForConditionalGeneration",
        {
            "vision_config": {"model_type": "clip_vision_model", **VISION},
            "text_config": {"model_type": "llama", **GROUPED},
            "image_token_index": 1,
        },
    ),
    "Qwen2-VL": (
        "Qwen2VLForConditionalGeneration",
        {
            "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 4},
            "text_config": {**GROUPED, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
        },
    ),
    "Qwen3-VL": (
        "Qwen3VLForConditionalGeneration",
        {
            "vision_config": {
                **{"depth": 1, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "intermediate_size": 16},
                **{"out_hidden_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
            },
            "text_config": {
                **WITH_HEADS,
                "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
            },
        },
    ),
}


@pytest.mark.short
def test_the_readme_names_the_architectures_that_are_tested() -> None:
    """Somebody would rely on an architecture that nobody has tried."""
    section = (ROOT / "README.md").read_text().partition("## Tested architectures")[2].partition("\n## ")[0]
    rows = re.findall(r"^- [\w-]+: (.*?)(?=^- |^$)", section, re.M | re.S)
    named = [name.strip() for row in rows for name in row.replace("\n", " ").split(",")]
    assert named == list(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_architecture_of_the_readme(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merged or restored model of an architecture that the README names would not load, or have other weights."""
    monkeypatch.chdir(tmp_path)
    name, settings = FAMILIES[family]
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    base = moved(kind(kind.config_class(**settings)), 0)
    models = {"base": base, "cars": moved(base, 1), "dtd": moved(base, 2)}
    for folder, model in models.items():
        model.save_pretrained(folder)
    call = ["--base", "base", "--task", "cars=cars", "--task", "dtd=dtd"]
    assert main(["merge", *call, "--method", "ties", "-o", "merged"]) == 0
    assert main(["compress", *call, "-o", "bundle"]) == 0
    assert main(["export", "bundle", "--task", "cars", "-o", "again"]) == 0
    for folder in ("merged", "again"):
        loaded, loading = kind.from_pretrained(folder, output_loading_info=True)
        assert not any(loading.values())
        assert any(not torch.equal(tensor, loaded.state_dict()[key]) for key, tensor in base.state_dict().items())
    live = kind.from_pretrained("base")
    tallmasks.load_bundle("bundle").apply_(live, "cars")
    assert all(torch.equal(tensor, live.state_dict()[key]) for key, tensor in loaded.state_dict().items())
