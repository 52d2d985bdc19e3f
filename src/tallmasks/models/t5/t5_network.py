"""T5 networks of transformers with their trainable tensors in one flat buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import T5ForConditionalGeneration, __version__

from tallmasks.models.families import Precision
from tallmasks.models.flat_weights import FlatWeights
from tallmasks.models.layer_inputs import Receiver, watched
from tallmasks.models.t5.text_batches import IGNORED, TextBatch, TokenizedText, cheapest
from tallmasks.models.t5.text_scoring import MARKS, Scoring
from tallmasks.models.t5.text_tokenizer import TextTokenizer
from tallmasks.store.errors import TallmasksError
from tallmasks.tasks.texts import FREE, Texts

OTHER = (
    f"transformers {__version__} has no T5LayerCrossAttention with an EncDecAttention that is a T5Attention, which is "
    "replaced here; expected transformers 5.23: `make install` installs it into .venv/"
)

try:
    from transformers.models.t5.modeling_t5 import T5Attention, T5LayerCrossAttention
except ImportError:
    raise TallmasksError(OTHER) from None


class TextModel(FlatWeights):
    """A T5 with its trainable tensors in one flat buffer; satisfies `tallmasks.models.families.Model`.

    The network has its weights and is on its device.  ``parameters`` are the trainable ones, by their names in a
    checkpoint.  ``precision`` is that of the network's products; scores are float32.
    """

    def __init__(
        self,
        network: T5ForConditionalGeneration,
        parameters: Mapping[str, torch.nn.Parameter],
        tokenizer: TextTokenizer,
        scoring: Scoring,
        precision: Precision = "float32",
    ) -> None:
        self._network = network.eval().requires_grad_(False)
        self._tokenizer, self.scoring = tokenizer, scoring
        self._mixed = precision == "bfloat16"
        _share_inputs(network)
        super().__init__(parameters)

    def train(self, on: bool) -> None:
        self._network.train(on)

    def prepare(self, examples: Texts, changes: Any = None, generator: torch.Generator | None = None) -> TextBatch:
        """Examples as tokens, inputs cut at ``max_input_tokens``.  Raises TallmasksError for changes of texts."""
        if changes is not None:
            raise TallmasksError(
                f"params.yaml: finetuning.augmentation: found {changes!r}, and texts cannot be changed; leave it out"
            )
        return self._batch(self._tokenized(examples))

    def batches(self, examples: Texts, batch_size: int) -> Iterator[TextBatch]:
        """Batches for an evaluation, sorted by length, the longest first; see `text_batches.cheapest`."""
        tokenized = self._tokenized(examples)
        for places in cheapest(tokenized, batch_size):
            yield self._batch([tokenized[place] for place in places])

    def _batch(self, tokenized: list[TokenizedText]) -> TextBatch:
        return TextBatch(tuple(tokenized), self._tokenizer.pad, self.device, self.scoring.max_input_tokens)

    def _tokenized(self, examples: Texts) -> list[TokenizedText]:
        texts = list(examples)
        inputs = self._tokenizer([text.input for text in texts], self.scoring.max_input_tokens)
        wanted = [(text.target,) if text.answer == FREE else text.answers for text in texts]
        every = list(dict.fromkeys(answer for answers in wanted for answer in answers))
        tokens = dict(zip(every, self._tokenizer(every), strict=True))
        return [
            TokenizedText(row, tuple(tokens[answer] for answer in answers), text.answer, text.answers)
            for row, answers, text in zip(inputs, wanted, texts, strict=True)
        ]

    # -- what it computes -------------------------------------------------------------------------------------

    def loss(self, batch: TextBatch) -> torch.Tensor:
        """Cross-entropy, mean over all target tokens of the batch, ends of sequence included."""
        hidden = self._decoded(batch.targets, self._encoded(batch), batch.mask)
        return functional.cross_entropy(self._logits(hidden).flatten(0, -2), batch.targets.flatten())

    def log_probabilities(self, batch: TextBatch) -> torch.Tensor:
        """Of every token of the vocabulary at the place of each target token of the batch, ends of sequence included,
        given those before it; float32 [R, V]."""
        hidden = self._decoded(batch.targets, self._encoded(batch), batch.mask)
        return functional.log_softmax(self._logits(hidden)[batch.targets != IGNORED], dim=-1)

    def choice_log_probabilities(self, batch: TextBatch) -> torch.Tensor:
        """Of the answers to choose from, float32 [N, C]; of a free answer, every token that it may begin with."""
        choices, free = batch.by_choice
        scores = [self.choice_scores(choices)[0]] if choices else []
        if free:
            first = torch.full((len(free), 1), IGNORED, device=self.device)
            scores.append(self._logits(self._decoded(first, self._encoded(free), free.mask))[:, 0])
        most = max(rows.shape[1] for rows in scores)
        logs = [functional.pad(rows.log_softmax(dim=1), (0, most - rows.shape[1]), value=-torch.inf) for rows in scores]
        return torch.cat(logs).clamp(min=torch.finfo(torch.float32).min)

    def watched(self, receive: Receiver) -> AbstractContextManager[None]:
        """See `WatchedModel.watched`; the output layer is among the linear layers, padding among the inputs."""
        return watched(self._network, dict(zip(self.trainable, self._parameters, strict=True)), receive)

    def count_right(self, batch: TextBatch) -> torch.Tensor:
        """The number of right answers, int64 scalar; of equally good choices the first counts.

        It is a sum of scores, float64, where a free answer can be partly right (``scoring.free_answers``).
        """
        return self._counts(batch, 1)[0]

    def _counts(self, batch: TextBatch, sets: int) -> torch.Tensor:
        """The same for each of the weight sets in use, [sets]."""
        right = torch.zeros(sets, dtype=torch.int64, device=self.device)
        choices, free = batch.by_choice
        if choices:
            best = self.choice_scores(choices, sets).argmax(dim=-1)
            right = right + (best == choices.right).sum(dim=1)
        if free:
            rows = iter(self.written(free, sets))
            marks = [
                [self.scoring.mark(next(rows), example.accepted) for example in free.examples] for _ in range(sets)
            ]
            kind = torch.int64 if self.scoring.counts else torch.float64
            right = right + torch.tensor(marks, dtype=torch.float64).sum(dim=1).to(self.device, kind)
        return right

    def further_scores(self, examples: Texts, batch_size: int) -> dict[str, float]:
        """Sums of both of SQuAD's scores over the free answers; empty without such."""
        marks: dict[str, float] = {}
        with torch.inference_mode():
            for batch in self.batches(examples[np.flatnonzero(examples.right == FREE)], batch_size):
                for answer, example in zip(self.written(batch), batch.examples, strict=True):
                    for name, mark in MARKS.items():
                        marks[name] = marks.get(name, 0.0) + mark(answer, example.accepted)
        return marks

    def choice_scores(self, batch: TextBatch, sets: int = 1) -> torch.Tensor:
        """The log-probability of every choice given the input, float32 [sets, N, C]; -infinity for a missing choice.

        An input is encoded once for all of its choices.
        """
        count, choices, longest = batch.choices.shape
        labels = batch.choices.repeat(sets, 1, 1).view(-1, longest)
        hidden = self._decoded(labels, self._encoded(batch, sets), batch.mask.repeat(sets, 1))
        losses = functional.cross_entropy(self._logits(hidden).flatten(0, 1), labels.flatten(), reduction="none")
        tokens = (labels != IGNORED).sum(dim=1)
        scores = -losses.view(-1, longest).sum(dim=1)
        if self.scoring.length_normalized:
            scores = scores / tokens.clamp(min=1)
        return scores.masked_fill(tokens == 0, -torch.inf).view(sets, count, choices)

    @torch.no_grad()
    def written(self, batch: TextBatch, sets: int = 1) -> list[str]:
        """The network's answer to each input, the most probable token at a time, [sets * N]."""
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
        ends = {self._tokenizer.pad, self._tokenizer.end}
        return [self._tokenizer.text([n for n in row if n not in ends]) for row in torch.cat(tokens, dim=1).tolist()]

    def _encoded(self, batch: TextBatch, sets: int = 1) -> torch.Tensor:
        """The encoder's output, [sets * N, S, D]: all inputs for one weight set, then for the next."""
        with self._products():
            inputs, mask = batch.inputs.repeat(sets, 1), batch.mask.repeat(sets, 1)
            return self._network.encoder(input_ids=inputs, attention_mask=mask).last_hidden_state

    def _decoded(self, labels: torch.Tensor, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The decoder's output for the tokens before each label, [R, L, D].

        R is a multiple of the number of inputs; the rows of one input follow each other.
        """
        start = labels.new_full((len(labels), 1), self._tokenizer.pad)
        before = torch.cat([start, labels[:, :-1]], dim=1)
        return self._decoder(before.masked_fill(before == IGNORED, self._tokenizer.pad), states, mask).last_hidden_state

    def _decoder(self, tokens: torch.Tensor, states: torch.Tensor, mask: torch.Tensor, **cache: Any) -> Any:
        with self._products():
            return self._network.decoder(
                input_ids=tokens, encoder_hidden_states=states, encoder_attention_mask=mask[:, None, None], **cache
            )

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the vocabulary, in float32 for any precision: scores in bfloat16 would have ties."""
        return self._network.lm_head(hidden.float())

    def _products(self) -> torch.autocast:
        # in nested contexts the cache keeps a weight's cast beyond a change of weight sets
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed, cache_enabled=False)


class _SharedInputs(T5Attention):
    """Cross-attention of several rows of the decoder to one input, whose keys and values are computed once.

    The queries of the rows are put one behind the other, as they need no position and do not see each other here.
    """

    def forward(  # type: ignore[override]  # all else by name
        self, hidden_states: torch.Tensor, mask: Any = None, key_value_states: Any = None, **more: Any
    ) -> Any:
        folded = hidden_states.reshape(len(key_value_states), -1, hidden_states.shape[-1])
        mixed, *rest = super().forward(folded, mask=mask, key_value_states=key_value_states, **more)
        return (mixed.reshape(hidden_states.shape), *rest)


def _share_inputs(network: T5ForConditionalGeneration) -> None:
    """Replace the cross-attention of a network.  Raises TallmasksError if it is of another class than expected."""
    layers = [module for module in network.modules() if isinstance(module, T5LayerCrossAttention)]
    attention = [getattr(layer, "EncDecAttention", None) for layer in layers]
    if not attention or {type(one) for one in attention} - {T5Attention, _SharedInputs}:
        raise TallmasksError(OTHER)
    for one in attention:
        one.__class__ = _SharedInputs
