"""CLIP models, built by open_clip.

A pretrained file of a custom architecture holds open_clip's own tensor names in float32 or float16. Its text tower
knows only the words that the prompts use: ``tokenizer.vocabulary`` lists their numbers in open_clip's tokenizer, in
ascending order, and row i of ``token_embedding.weight`` belongs to entry i. The end-of-text token has the largest
number and so stays the largest, which is how CLIP finds the end of a prompt.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from open_clip.tokenizer import SimpleTokenizer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional

from tallmasks.errors import TallmasksError
from tallmasks.tasks import Task

VOCABULARY = "tokenizer.vocabulary"  # int64 [V] in the pretrained file
TRAINABLE_PREFIX = "visual."
TEXT_TRANSFORMER_PREFIX = "transformer."  # counts for neither P' nor F, as in the paper


class Tokenizer:
    """open_clip's tokenizer, restricted to the words of a vocabulary.

    Args:
        vocabulary: Numbers in open_clip's tokenizer, ascending; padding (0) and end of text are among them.
        context_length: Tokens of a prompt, padding included.
    """

    def __init__(self, vocabulary: Sequence[int], context_length: int) -> None:
        self._tokenizer = SimpleTokenizer(context_length=context_length)
        self._rank = {token: rank for rank, token in enumerate(vocabulary)}

    def __call__(self, prompts: Sequence[str]) -> torch.Tensor:
        """Token ranks, int64 [N, context length].

        Raises:
            TallmasksError: If a prompt has a word that pretraining never saw.
        """
        rows = []
        for prompt, tokens in zip(prompts, self._tokenizer(list(prompts)).tolist(), strict=True):
            unknown = [token for token in tokens if token not in self._rank]
            if unknown:
                raise TallmasksError(
                    f"Prompt {prompt!r}: the model's vocabulary has no {self._tokenizer.decode(unknown).strip()!r}. "
                    "Use words of the tasks it was pretrained for, or pretrain it anew with this task."
                )
            rows.append([self._rank[token] for token in tokens])
        return torch.tensor(rows)


def vocabulary_of(prompts: Iterable[str], context_length: int) -> tuple[int, ...]:
    """The tokens that prompts use, padding and end of text included, ascending."""
    tokens = SimpleTokenizer(context_length=context_length)(list(prompts))
    return tuple(torch.unique(tokens).tolist())


def build(architecture: Mapping[str, Any], vocabulary_size: int) -> CLIP:
    """open_clip's CLIP with random weights.

    Args:
        architecture: open_clip's configuration: ``embed_dim``, ``vision_cfg``, ``text_cfg``.
        vocabulary_size: Rows of the token embedding.
    """
    return CLIP(
        architecture["embed_dim"],
        CLIPVisionCfg(**architecture["vision_cfg"]),
        CLIPTextCfg(**architecture["text_cfg"], vocab_size=vocabulary_size),
    )


def prepare(images: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
    """Images uint8 [N, H, W, 3] as float32 [N, 3, H, W] in -1 to 1."""
    return torch.as_tensor(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


class ClipModel:
    """A CLIP network with its visual tower in one flat buffer; satisfies :class:`tallmasks.models.Model`.

    Args:
        network: The network, with its weights loaded.
        tokenizer: Turns prompts into its tokens.
    """

    def __init__(self, network: CLIP, tokenizer: Tokenizer) -> None:
        self._network = network.eval().requires_grad_(False)
        self._tokenizer = tokenizer
        named = {name: p for name, p in network.named_parameters() if name.startswith(TRAINABLE_PREFIX)}
        self.trainable: tuple[str, ...] = tuple(sorted(named))
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(named[name].shape) for name in self.trainable}
        self._parameters = [named[name].requires_grad_(True) for name in self.trainable]
        self.flat = torch.cat([parameter.detach().reshape(-1).float() for parameter in self._parameters])
        self._pretrained = self.flat.clone()
        for parameter, view in zip(self._parameters, self._views(), strict=True):
            parameter.data = view

    def _views(self) -> list[torch.Tensor]:
        pieces = self.flat.split([parameter.numel() for parameter in self._parameters])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def pretrained_flat(self) -> torch.Tensor:
        """A copy of the flat buffer as it was loaded, float32 [P']."""
        return self._pretrained.clone()

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters in the order of ``trainable``, for an optimizer."""
        return list(self._parameters)

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the trainable tensors by name, float32, as a checkpoint stores them."""
        return {name: view.numpy().copy() for name, view in zip(self.trainable, self._views(), strict=True)}

    def parameter_counts(self) -> tuple[int, int]:
        """P' and F of the paper's storage formula. The text transformer is in neither, as in the paper."""
        counted = [
            (name, parameter.numel())
            for name, parameter in self._network.named_parameters()
            if not name.startswith(TEXT_TRANSFORMER_PREFIX)
        ]
        trainable = sum(count for name, count in counted if name.startswith(TRAINABLE_PREFIX))
        return trainable, sum(count for _, count in counted) - trainable

    @torch.no_grad()
    def head(self, task: Task) -> torch.Tensor:
        """The frozen zero-shot head, float32 [C, D].

        A class is the normalised mean over the templates of normalised text embeddings, times exp(logit scale).
        """
        rows = []
        for label in range(len(task.classes)):
            embedded = self._network.encode_text(self._tokenizer(task.prompts(label)), normalize=True)
            rows.append(functional.normalize(embedded.mean(dim=0), dim=0))
        return torch.stack(rows) * self._network.logit_scale.exp()

    def prepare(self, images: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
        """Images uint8 [N, H, W, 3] as float32 [N, 3, H, W] in -1 to 1."""
        return prepare(images)

    def logits(self, prepared: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Scores float32 [N, C]: normalised image features times the head."""
        return self._network.encode_image(prepared, normalize=True) @ head.T


def load(architecture: Mapping[str, Any], weights: Path) -> ClipModel:
    """A custom architecture with the weights of a pretrained file.

    Raises:
        TallmasksError: If the file is missing or damaged, or its tensors are not those of the architecture.
    """
    try:
        tensors = load_file(weights)
    except FileNotFoundError:
        raise TallmasksError(
            f"{weights}: no such file. The pretrained model ships with the project; `git checkout` restores it and "
            "`snakemake pretrain_tiny` makes it anew."
        ) from None
    except SafetensorError as error:
        raise TallmasksError(f"{weights}: not a whole safetensors file ({error}). Restore or remake it.") from None
    if VOCABULARY not in tensors:
        raise TallmasksError(f"{weights}: the tensor {VOCABULARY!r} is missing. Remake it: `snakemake pretrain_tiny`.")
    vocabulary = tensors.pop(VOCABULARY).tolist()
    network = build(architecture, len(vocabulary))
    _check(weights, network.state_dict(), tensors)
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return ClipModel(network, Tokenizer(vocabulary, network.context_length))


def _check(weights: Path, expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> None:
    """Refuse a file whose tensor names or shapes differ from the architecture's."""
    remedy = "The file and `architecture` in params.yaml must belong together: restore one, or pretrain anew."
    for what, names in (("missing", expected.keys() - found.keys()), ("not expected", found.keys() - expected.keys())):
        if names:
            raise TallmasksError(f"{weights}: tensor {min(names)!r} ({len(names)} in all) is {what}. {remedy}")
    for name, tensor in expected.items():
        if tensor.shape != found[name].shape:
            raise TallmasksError(
                f"{weights}: tensor {name!r} has shape {list(found[name].shape)}, expected {list(tensor.shape)}. "
                f"{remedy}"
            )
        if not torch.isfinite(found[name]).all():
            raise TallmasksError(f"{weights}: tensor {name!r} holds NaN or infinity. {remedy}")
