"""Small models of transformers' classes; adding small changes to their weights is exact."""

import copy

import torch
import transformers

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
IMAGES = {"image_size": 8, "patch_size": 4}
WORDS = {"vocab_size": 20, "max_position_embeddings": 16}
SEQUENCES = {
    **{f"{part}_{what}": number for part in ("encoder", "decoder") for what, number in (
        ("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))},
    **WORDS, "d_model": 16, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2,
}  # fmt: skip
SPEECH = {
    "conv_dim": [8], "conv_stride": [2], "conv_kernel": [3], "num_feat_extract_layers": 1,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "vocab_size": 12,
}  # fmt: skip
CLASSES = {
    "ViTForImageClassification": {**SIZE, **IMAGES},
    "Dinov2Model": {**SIZE, **IMAGES},
    "SwinModel": {**IMAGES, "image_size": 16, "embed_dim": 8, "depths": [1], "num_heads": [2], "window_size": 2},
    "BertForMaskedLM": {**SIZE, **WORDS},
    "Wav2Vec2ForCTC": {**SIZE, **SPEECH},
    "MixtralForCausalLM": {**SIZE, **WORDS, "num_local_experts": 2, "num_key_value_heads": 2},
    "Qwen2MoeForCausalLM": {
        **SIZE, **WORDS, "num_experts": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
    },
    "GPTNeoXForCausalLM": {**SIZE, **WORDS},
    "GPT2LMHeadModel": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20},
    "LlamaForCausalLM": {**SIZE, **WORDS, "tie_word_embeddings": True},
    "BartForConditionalGeneration": SEQUENCES,
    "T5ForConditionalGeneration": {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2},
}  # fmt: skip


def made(name):
    """A small model of a class; its weights have few digits, so that sums are exact."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    return moved(kind(kind.config_class(**CLASSES[name])), 0)


def moved(model, seed=1):
    """A copy with other weights."""
    model, draw = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(((parameter + 0.2 * torch.randn(parameter.shape, generator=draw)) * 1024).round() / 1024)
    return model
