"""T5 networks of transformers, loaded from pretrained files, with full fine-tuning or (IA)^3 (Liu et al. 2022).

Cross-attention processes an input once for all of its answers.  (IA)^3 trains vectors that rescale keys, values, and
the input of the feed-forward's second matrix; all sets of vectors share the network's weights, so one pass over
repeated inputs can evaluate several sets.

A pretrained file contains the hub's tensors, each once, in float32 or half precision, and ``tokenizer.json`` as uint8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention, T5LayerCrossAttention

from reproduction.models import cuda
from reproduction.models.families import Precision
from reproduction.models.language.text_batches import ANSWER_TOKENS, IGNORED, INPUT_TOKENS, TextBatch
from reproduction.models.language.text_model import TextModel
from reproduction.models.language.text_scoring import Scoring
from reproduction.models.language.text_tokenizer import TextTokenizer, stored_tokenizer
from reproduction.models.pretrained_files import check_tensors, read_pretrained
from reproduction.models.t5.t5_architectures import IA3_SUFFIX, PEFT_PREFIX, Architecture


class T5Model(TextModel):
    """A T5; ``precision`` is that of matrix products, logits are float32."""

    def __init__(
        self,
        network: T5ForConditionalGeneration,
        parameters: Mapping[str, torch.nn.Parameter],
        tokenizer: TextTokenizer,
        scoring: Scoring,
        precision: Precision = "float32",
    ) -> None:
        self._mixed = precision == "bfloat16"
        _share_inputs(network)
        super().__init__(network, parameters, tokenizer, scoring)

    def answer_logits(self, batch: TextBatch, labels: torch.Tensor, sets: int = 1) -> torch.Tensor:
        """See `TextModel.answer_logits`; an input is encoded once for all of its rows."""
        start = labels.new_full((len(labels), 1), self._tokenizer.pad)
        before = torch.cat([start, labels[:, :-1]], dim=1)
        tokens = before.masked_fill(before == IGNORED, self._tokenizer.pad)
        output = self._decoder(tokens, self._encoded(batch, sets), batch.mask.repeat(sets, 1))
        return self._logits(output.last_hidden_state)

    @torch.no_grad()
    def written(self, batch: TextBatch, sets: int = 1) -> list[str]:
        states, mask = self._encoded(batch, sets), batch.mask.repeat(sets, 1)
        token = torch.full((len(states), 1), self._tokenizer.pad, device=self.device)
        tokens, cache = [], None
        done = torch.zeros(len(states), dtype=torch.bool, device=self.device)
        for _ in range(self.scoring.max_new_tokens):
            output = self._decoder(token, states, mask, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            token = self._logits(output.last_hidden_state[:, -1:]).argmax(dim=-1)
            tokens.append(token.masked_fill(done[:, None], self._tokenizer.pad))
            done |= token[:, 0] == self._tokenizer.end
            if done.all():
                break
        return self._texts(torch.cat(tokens, dim=1))

    def _encoded(self, batch: TextBatch, sets: int = 1) -> torch.Tensor:
        """The encoder's output, [sets * N, S, D]."""
        with self._products():
            inputs, mask = batch.inputs.repeat(sets, 1), batch.mask.repeat(sets, 1)
            return self._network.encoder(input_ids=inputs, attention_mask=mask).last_hidden_state

    def _decoder(self, tokens: torch.Tensor, states: torch.Tensor, mask: torch.Tensor, **cache: Any) -> Any:
        with self._products():
            return self._network.decoder(
                input_ids=tokens, encoder_hidden_states=states, encoder_attention_mask=mask[:, None, None], **cache
            )

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """In float32, because bfloat16 scores would have ties."""
        return self._network.lm_head(hidden.float())

    def _products(self) -> torch.autocast:
        # in nested autocast contexts the cache would keep casts of the previous weight set
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed, cache_enabled=False)


class _SharedInputs(T5Attention):
    """Cross-attention of several decoder rows to one input, whose keys and values are computed once.

    The rows' queries are concatenated.  Cross-attention has no positions and queries do not attend to each other, so
    the results are the same.
    """

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, mask: Any = None, key_value_states: Any = None, **more: Any
    ) -> Any:
        folded = hidden_states.reshape(len(key_value_states), -1, hidden_states.shape[-1])
        mixed, *rest = super().forward(folded, mask=mask, key_value_states=key_value_states, **more)
        return (mixed.reshape(hidden_states.shape), *rest)


def _share_inputs(network: T5ForConditionalGeneration) -> None:
    """Replace the classes of the cross-attention layers."""
    for module in network.modules():
        if isinstance(module, T5LayerCrossAttention):
            assert type(module.EncDecAttention) in (T5Attention, _SharedInputs), "of another release of transformers"
            module.EncDecAttention.__class__ = _SharedInputs


class Ia3Model(T5Model):
    """A T5 that trains only (IA)^3's vectors, which start as ones; ``shapes``: their shapes by PEFT's names, sorted."""

    def __init__(
        self,
        network: T5ForConditionalGeneration,
        shapes: Mapping[str, tuple[int, ...]],
        tokenizer: TextTokenizer,
        scoring: Scoring,
        precision: Precision = "float32",
    ) -> None:
        device = network.shared.weight.device
        ones = {name: torch.nn.Parameter(torch.ones(shape, device=device)) for name, shape in shapes.items()}
        super().__init__(network, ones, tokenizer, scoring, precision)
        self._sets: list[torch.Tensor] | None = None
        for index, name in enumerate(self.trainable):
            module = network.get_submodule(name.removeprefix(PEFT_PREFIX).removesuffix(IA3_SUFFIX))
            if self.shapes[name][1] == 1:
                module.register_forward_hook(lambda _, inputs, output, index=index: self._rescaled(output, index))
            else:
                module.register_forward_pre_hook(lambda _, inputs, index=index: self._rescaled(inputs[0], index))

    def count_right_of(self, batch: TextBatch, sets: Sequence[torch.Tensor]) -> torch.Tensor:
        """`count_right` of several weight sets, each float32 [P'], as [sets]; several sets share a pass."""
        answer_tokens = sum(len(e.answers) * max(map(len, e.answers)) for e in batch.examples)
        sets_at_once = max(1, min(INPUT_TOKENS // batch.inputs.numel(), ANSWER_TOKENS // answer_tokens))
        sizes = [parameter.numel() for parameter in self._parameters]
        counts = []
        for start in range(0, len(sets), sets_at_once):
            stacked = torch.stack(list(sets[start : start + sets_at_once]))
            self._sets = list(stacked.split(sizes, dim=1))
            try:
                counts.append(self._counts(batch, len(stacked)))
            finally:
                self._sets = None
        return torch.cat(counts)

    def _rescaled(self, hidden: torch.Tensor, index: int) -> torch.Tensor:
        """Activations [R, T, D] times the trained vector; with several sets, each has its own block of rows."""
        if self._sets is None:
            return (hidden * self._parameters[index].flatten()).to(hidden.dtype)
        vectors = self._sets[index]
        blocks = hidden.reshape(len(vectors), -1, *hidden.shape[1:]) * vectors[:, None, None]
        return blocks.reshape(hidden.shape).to(hidden.dtype)


def network_of(architecture: Architecture, tensors: Mapping[str, torch.Tensor]) -> T5ForConditionalGeneration:
    """transformers' network with the tensors of a pretrained file, in float32.

    transformers always ties the two tables, so copying values would overwrite one of them.  The tensors are assigned
    instead, which makes them separate parameters.
    """
    with torch.device("meta"):
        network = T5ForConditionalGeneration(T5Config(**architecture.config))
    named = {name: tensor.float() for name, tensor in tensors.items()}
    network.load_state_dict(named, strict=False, assign=True)
    network.set_input_embeddings(network.shared)
    return network


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> T5Model:
    """See `Family.load`; ``spec`` has ``architecture``, ``adapter`` and ``scoring``."""
    torch_device = cuda.choose(device)
    architecture = Architecture.of(spec["architecture"])
    tensors = read_pretrained(weights)
    tokenizer = stored_tokenizer(tensors, weights, architecture.vocab_size)
    check_tensors(weights, architecture.shapes, tensors)
    network = network_of(architecture, tensors)
    torch.nn.Module.to(network, torch_device)
    if torch_device.type == "cuda":
        cuda.make_repeatable(tf32=precision == "tf32")
    adapter, scoring = spec.get("adapter"), Scoring.of(spec)
    if adapter is not None:
        return Ia3Model(network, architecture.trainable(adapter), tokenizer, scoring, precision)
    named = dict(network.named_parameters())
    trained = {name: named[name] for name in architecture.trainable()}
    return T5Model(network, trained, tokenizer, scoring, precision)
