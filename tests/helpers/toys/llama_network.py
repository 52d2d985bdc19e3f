"""Llamas by transformers on batches of texts; the package has the rest of scoring by choice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from reproduction.models import cuda
from reproduction.models.language.text_batches import IGNORED, TextBatch
from reproduction.models.language.text_model import TextModel
from reproduction.models.language.text_scoring import Scoring
from reproduction.models.language.text_tokenizer import TENSOR, stored_tokenizer
from reproduction.models.pretrained_files import check_tensors, read_pretrained
from tallmasks.io.tensor_files import write_tensors
from toys.questions_toy import END, PAD, WORDS


class LlamaModel(TextModel):
    """A Llama: an answer follows its question in one row of tokens."""

    def input_tokens(self, texts: list[str]) -> list[list[int]]:
        """Without the end of sequence, which comes after the answer."""
        return [row[:-1] for row in super().input_tokens(texts)]

    def answer_logits(self, batch: TextBatch, labels: torch.Tensor, sets: int = 1) -> torch.Tensor:
        """Padding lies between a question and its answer; attention and positions leave it out."""
        times = len(labels) // len(batch)
        inputs, mask = batch.inputs.repeat_interleave(times, 0), batch.mask.repeat_interleave(times, 0)
        tokens = torch.cat([inputs, labels.masked_fill(labels == IGNORED, batch.pad)], dim=1)
        attended = torch.cat([mask, labels != IGNORED], dim=1).long()
        places = (attended.cumsum(dim=1) - 1).clamp(min=0)
        logits = self._network(input_ids=tokens, attention_mask=attended, position_ids=places).logits
        first = mask.sum(dim=1, keepdim=True) - 1  # the question's last token is before the answer's first
        before = torch.arange(inputs.shape[1], tokens.shape[1] - 1, device=first.device).expand(len(labels), -1)
        wanted = torch.cat([first, before], dim=1)
        return logits.gather(1, wanted[..., None].expand(-1, -1, logits.shape[-1])).float()


def load(spec: Mapping[str, Any], weights: Path, device: Any) -> LlamaModel:
    """A Llama with the weights and the tokenizer of a pretrained file."""
    network, tensors = build(spec["architecture"]), read_pretrained(weights)
    tokenizer = stored_tokenizer(tensors, weights, network.config.vocab_size, pad=PAD, end=END)
    check_tensors(weights, {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}, tensors)
    network.load_state_dict(tensors)
    network.to(cuda.choose(device))
    return LlamaModel(network, dict(network.named_parameters()), tokenizer, Scoring.of(spec))


def build(architecture: Mapping[str, Any]) -> LlamaForCausalLM:
    """transformers' network with random weights."""
    return LlamaForCausalLM(LlamaConfig(**architecture, vocab_size=len(WORDS), tie_word_embeddings=False))


def write_random(architecture: Mapping[str, Any], path: Path) -> None:
    """A pretrained file: random weights, and the tokenizer."""
    torch.manual_seed(0)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text = np.frombuffer(tokenizer.to_str().encode(), np.uint8)
    tensors = {name: tensor.numpy() for name, tensor in build(architecture).state_dict().items()}
    write_tensors(path, {**tensors, TENSOR: text}, {})
