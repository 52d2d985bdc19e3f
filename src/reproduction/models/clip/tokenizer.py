"""open_clip's tokenizer, restricted to a small vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from open_clip.tokenizer import SimpleTokenizer

from tallmasks.errors import TallmasksError


class Tokenizer:
    """``vocabulary``: open_clip's token ids in ascending order, including padding (0) and end of text."""

    def __init__(self, vocabulary: Sequence[int], context_length: int) -> None:
        self._tokenizer = SimpleTokenizer(context_length=context_length)
        self._rank = {token: rank for rank, token in enumerate(vocabulary)}

    def __call__(self, prompts: Sequence[str]) -> torch.Tensor:
        """Indices into the vocabulary, int64 [N, context length].  Raises TallmasksError for an unknown token."""
        rows = []
        for prompt, tokens in zip(prompts, self._tokenizer(list(prompts)).tolist(), strict=True):
            unknown = [token for token in tokens if token not in self._rank]
            if unknown:
                raise TallmasksError(
                    f"prompt {prompt!r}: the model's vocabulary has no {self._tokenizer.decode(unknown).strip()!r}. "
                    "The tiny model knows only the words of its own tasks. The next larger model, vit_b32, also runs "
                    "on a laptop, slowly, with gpu: 0 under its resources in params.yaml"
                )
            rows.append([self._rank[token] for token in tokens])
        return torch.tensor(rows)


def vocabulary_of(prompts: Iterable[str], context_length: int) -> tuple[int, ...]:
    """The token ids of the prompts in ascending order, including padding and end of text."""
    tokens = SimpleTokenizer(context_length=context_length)(list(prompts))
    return tuple(torch.unique(tokens).tolist())
