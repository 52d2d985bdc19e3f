"""T5 networks of transformers, with a cross-attention that processes an input once for all of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention, T5LayerCrossAttention

from reproduction.models.families import Precision
from reproduction.models.language.text_batches import IGNORED, TextBatch
from reproduction.models.language.text_model import TextModel
from reproduction.models.language.text_scoring import Scoring
from reproduction.models.language.text_tokenizer import TextTokenizer


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
