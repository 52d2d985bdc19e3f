"""Text classifiers of transformers.

`heads: class_names`: the features of a text are the normalised mean of the last hidden states of its tokens.  A class
vector is the normalised mean of the features of the prompts with its name.

`heads: trained`: the network is transformers' AutoModelForSequenceClassification.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from reproduction.models import cuda
from reproduction.models.classifiers import networks
from reproduction.models.classifiers.heads import CLASS_VECTORS
from reproduction.models.families import Precision
from reproduction.models.language.text_batches import TextBatch, cheapest
from reproduction.models.pretrained_files import read_pretrained
from reproduction.models.text_classifier.classifier_architectures import PADDING_MATTERS, settings_of
from reproduction.models.text_classifier.classifier_examples import TOKENIZER, ClassifierExamples
from reproduction.models.text_classifier.classifier_tokenizer import ClassifierTokenizer, TokenizedPair, tokenizer_of
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError

LONGEST = 128
"""Default number of tokens to which texts are cut, special tokens included."""
SCALE = 20.0
"""Default factor of the cosines."""


@dataclass(frozen=True)
class ClassifierBatch(TextBatch):
    """Tokenized texts; ``head``: the task's head by tensor name, on the device."""

    head: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        return len(self)

    @cached_property
    def others(self) -> dict[str, torch.Tensor]:
        """See `TokenizedPair`; int64 [N, S], padded with 0."""
        rows: list[Mapping[str, list[int]]] = [example.others for example in self.examples]  # type: ignore[attr-defined]
        return {name: self._padded([row[name] for row in rows], 0) for name in rows[0]}


class ClassifierModel(networks.Classifier):
    """Implements `reproduction.models.families.WatchedModel`.

    Args:
        network, parameters, precision: see `networks.Classifier`.
        longest: the number of tokens to which texts are cut.
        scale: the factor of the cosines; not used for trained heads.
    """

    def __init__(
        self,
        network: Any,
        parameters: Mapping[str, torch.nn.Parameter],
        tokenizer: ClassifierTokenizer,
        longest: int = LONGEST,
        scale: float = SCALE,
        precision: Precision = "float32",
    ) -> None:
        self._tokenizer, self._longest, self._scale = tokenizer, longest, scale
        self._accepts = {*inspect.signature(network.forward).parameters}
        if getattr(network.config, "type_vocab_size", 2) == 1:  # pairs of texts would be out of range
            self._accepts.discard("token_type_ids")
        self._looks_at_padding = network.config.model_type in PADDING_MATTERS
        self._end = getattr(network.config, "eos_token_id", None) if network.config.is_encoder_decoder else None
        self._vocabulary = vocabulary_of(network.config)
        super().__init__(network, parameters, precision)

    @torch.no_grad()
    def head(self, task: Task, examples: Any = None) -> dict[str, NDArray[np.float32]]:
        """The frozen head of class names, float32 [C, D]."""
        rows = []
        for label in range(len(task.classes)):
            prompts = self._tokenizer(task.prompts(label), [label] * len(task.templates), LONGEST)
            rows.append(functional.normalize(self._features(self._batch(prompts, {})).mean(dim=0), dim=0))
        return {CLASS_VECTORS: torch.stack(rows).cpu().numpy()}

    def prepare(
        self, examples: ClassifierExamples, changes: Any = None, generator: torch.Generator | None = None
    ) -> ClassifierBatch:
        """Tokenize examples.  Raises TallmasksError for ``changes``, because texts are not augmented."""
        if changes is not None:
            raise TallmasksError(
                f"params.yaml: finetuning.augmentation: found {changes!r}, but texts are not augmented; remove the key"
            )
        return self._batch(self._tokenized(examples), self._on_device(examples.head))

    def batches(self, examples: ClassifierExamples, batch_size: int) -> Iterator[ClassifierBatch]:
        """Batches sorted by length, the longest first; see `text_batches.cheapest`."""
        tokenized, head = self._tokenized(examples), self._on_device(examples.head)
        for indices in cheapest(tokenized, batch_size):
            yield self._batch([tokenized[index] for index in indices], head)

    def _tokenized(self, examples: ClassifierExamples) -> list[TokenizedPair]:
        return self._tokenizer(examples.texts.questions, examples.texts.right.tolist(), self._longest)

    def _batch(self, tokenized: list[TokenizedPair], head: Mapping[str, torch.Tensor]) -> ClassifierBatch:
        pad = self._tokenizer.pad
        if pad is None:  # transformers' heads take the last token that is not the padding token: one that no text has
            used = {token for one in tokenized for token in one.input}
            pad = next(token for token in range(len(used) + 1) if token not in used)
            pad = min(pad, self._vocabulary - 1)  # if the texts have every token
        return ClassifierBatch(tuple(tokenized), pad, self.device, self._longest, head)

    def logits(self, batch: ClassifierBatch) -> torch.Tensor:
        """float32 [N, C]."""
        if CLASS_VECTORS in batch.head:
            return self._scale * self._features(batch) @ batch.head[CLASS_VECTORS].T
        self._use_head(batch.head)
        return self._as_alone(lambda some: self._output(some).logits.float(), batch)

    def _features(self, batch: ClassifierBatch) -> torch.Tensor:
        """Normalised features, float32 [N, D]."""
        return self._as_alone(self._pooled, batch)

    def _pooled(self, batch: ClassifierBatch) -> torch.Tensor:
        states, mask = self._output(batch).last_hidden_state.float(), batch.mask[:, :, None]
        return functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1), dim=1)

    def _as_alone(self, compute: Callable[[ClassifierBatch], torch.Tensor], batch: ClassifierBatch) -> torch.Tensor:
        """``compute(batch)``; text by text if padding changes what the network computes, or if the texts of an
        encoder-decoder contain different numbers of end tokens, which transformers refuses."""
        ends = (batch.inputs == self._end).sum(dim=1).unique() if isinstance(self._end, int) else ()
        if not self._looks_at_padding and len(ends) <= 1:
            return compute(batch)
        return torch.cat([compute(replace(batch, examples=(example,))) for example in batch.examples])

    def _output(self, batch: ClassifierBatch) -> Any:
        for config in (self._network.config, self._network.config.get_text_config()):
            config.pad_token_id = batch.pad
        inputs = {"attention_mask": batch.mask.long(), **batch.others}
        accepted = {name: tensor for name, tensor in inputs.items() if name in self._accepts}
        # in nested autocast contexts the cache would keep casts of the previous weight set
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed, cache_enabled=False):
            return self._network(input_ids=batch.inputs, **accepted)


def configuration(spec: Mapping[str, Any], classes: int | None = None) -> PretrainedConfig:
    """See `networks.configuration`.  Raises TallmasksError also for a padding token outside of the vocabulary."""
    config = networks.configuration(settings_of(spec["architecture"]), classes)
    pad, vocabulary = getattr(config, "pad_token_id", None), getattr(config, "vocab_size", None)
    if pad is not None and vocabulary is not None and not 0 <= pad < vocabulary:
        raise TallmasksError(
            f"params.yaml: architecture.pad_token_id: found {pad}, expected the tokenizer's padding token, below "
            f"vocab_size ({vocabulary})"
        )
    return config


def vocabulary_of(config: PretrainedConfig) -> int:
    """The rows of the embedding table; unlimited for models without one, such as CANINE."""
    return int(getattr(config.get_text_config(), "vocab_size", None) or sys.maxsize)


def build(spec: Mapping[str, Any], classes: int = 2, pooling: bool = False) -> Any:
    """See `networks.build`."""
    trained = AutoModelForSequenceClassification if networks.trains(spec) else None
    return networks.build(configuration(spec, classes), trained, pooling)


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> ClassifierModel:
    """See `Family.load`.  With trained heads and ``spec["classes"]``, the model also trains a new head."""
    tensors = read_pretrained(weights)
    if TOKENIZER not in tensors:
        raise TallmasksError(
            f"{weights}: the tensor {TOKENIZER!r} is missing; to use a model saved by transformers, set `pretrained` "
            "in params.yaml to its folder, not to the file in it"
        )
    tokenizer = tokenizer_of(tensors.pop(TOKENIZER).numpy())
    network, parameters = networks.loaded(spec, build, weights, tensors, precision, device)
    scoring = spec.get("scoring", {})
    return ClassifierModel(
        network,
        parameters,
        ClassifierTokenizer(tokenizer, getattr(network.config.get_text_config(), "pad_token_id", None)),
        min(scoring.get("max_input_tokens", LONGEST), positions(network)),
        scoring.get("cosine_scale", SCALE),
        precision,
    )


def positions(network: Any) -> int:
    """The tokens that the position embeddings are enough for. Those of RoBERTa and its like start after the padding
    token's."""
    found = getattr(network.config, "max_position_embeddings", None) or 0
    starts = [
        module.padding_idx + 1
        for name, module in network.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    ]
    return found - max(starts, default=0) if found > 0 else 1 << 20
