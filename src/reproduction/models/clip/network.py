"""CLIP models, built by open_clip.

A pretrained file contains open_clip's tensors in float32 or float16.  Buffers, such as batch-norm statistics, have the
prefix ``buffers.``.  The tiny model's text encoder knows only the tokens of the prompts: ``tokenizer.vocabulary`` lists
their ids in open_clip's tokenizer in ascending order, and row i of ``token_embedding.weight`` belongs to entry i.  The
end-of-text token still has the largest id, by which CLIP finds the end of a prompt.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.tokenizer import SimpleTokenizer
from torch.nn import functional

from reproduction.models import cuda
from reproduction.models.clip import tensor_names
from reproduction.models.clip.onednn import use_onednn
from reproduction.models.families import HEAD, Precision
from reproduction.models.flat_weights import FlatWeights, Receiver, count_right
from reproduction.models.pretrained_files import ZeroInitialised, check_tensors, read_pretrained
from reproduction.models.vision.image_model import ImageBatch, ImageBatches
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError

VOCABULARY = "tokenizer.vocabulary"  # int64 [V] in the pretrained file
BUFFER_PREFIX = "buffers."

Tokenize = Callable[[Sequence[str]], torch.Tensor]


def build(architecture: str | Mapping[str, Any], vocabulary_size: int | None = None) -> CLIP | CustomTextCLIP:
    """open_clip's network with random weights, on the default device.

    Args:
        architecture: The name of an open_clip model, or a configuration (``embed_dim``, ``vision_cfg``, ``text_cfg``).
        vocabulary_size: Rows of the token embedding (default: the configuration's).
    """
    named = open_clip.get_model_config(architecture) if isinstance(architecture, str) else architecture
    config = copy.deepcopy(dict(named))
    if vocabulary_size is not None:
        config["text_cfg"] = {**config["text_cfg"], "vocab_size": vocabulary_size}
    if "timm_model_name" in config["vision_cfg"]:
        config["vision_cfg"]["timm_model_pretrained"] = False  # all weights come from one file
    is_custom = config.pop("custom_text", False)
    if "hf_model_name" in config["text_cfg"]:
        config["text_cfg"]["hf_model_pretrained"] = False
        is_custom = True
    return CustomTextCLIP(**config) if is_custom else CLIP(**config)


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


@dataclass(frozen=True)
class Preprocess:
    """Converts images to the network's input; ``mean`` and ``std`` are per channel, for pixels in 0 to 1."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 [N, H, W, 3] to float32 [N, 3, size, size]; resizing rounds to integers, as Pillow does."""
        pixels = images.permute(0, 3, 1, 2).float()
        mean, std = (_row(tuple(values), pixels.device) for values in (self.mean, self.std))
        if pixels.shape[2:] != (self.size, self.size):
            size = [self.size, self.size]
            pixels = functional.interpolate(pixels, size, mode="bicubic", antialias=True).round_().clamp_(0, 255)
        return pixels.div_(255).sub_(mean).div_(std)


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)  # later callers can be outside the first caller's inference mode
def _row(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, device=device).view(1, 3, 1, 1)


def prepare(images: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
    """Convert uint8 [N, H, W, 3] to float32 [N, 3, H, W] in -1 to 1, for drawn tasks."""
    return torch.as_tensor(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


class ClipModel(ImageBatches, FlatWeights):
    """A CLIP network with its image encoder in one flat buffer; implements `reproduction.models.families.WatchedModel`.

    Args:
        network: With its weights, on its device.
        tokenizer: Returns the tokenizer.  Called for the first head only, because it is slow.
        preprocess: Converts images to the network's input.
        precision: Of the image encoder's matrix products.
    """

    def __init__(
        self,
        network: CLIP | CustomTextCLIP,
        tokenizer: Callable[[], Tokenize],
        preprocess: Callable[[torch.Tensor], torch.Tensor] = prepare,
        precision: Precision = "float32",
    ) -> None:
        self._network = network.eval().requires_grad_(False)
        self._tokenizer, self._preprocess = functools.cache(tokenizer), preprocess
        self._mixed = precision == "bfloat16"
        size = network.visual.image_size
        self._side = size[0] if isinstance(size, tuple) else size
        trained = {n: p for n, p in network.named_parameters() if n.startswith(tensor_names.TRAINABLE)}
        super().__init__(trained)

    def _on_device(self, head: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(head).to(self.device)

    @torch.no_grad()
    def head(self, task: Task, examples: Any = None) -> dict[str, NDArray[np.float32]]:
        """The frozen zero-shot head, float32 [C, D].

        A class vector is the normalised mean of its prompts' normalised embeddings, times exp(logit scale).
        """
        rows = []
        for label in range(len(task.classes)):
            tokens = self._tokenizer()(task.prompts(label)).to(self.device)
            embedded = self._network.encode_text(tokens, normalize=True)
            rows.append(functional.normalize(embedded.mean(dim=0), dim=0))
        return {HEAD: (torch.stack(rows) * self._network.logit_scale.exp()).cpu().numpy()}

    def train(self, on: bool) -> None:
        """Does nothing, because these networks have no dropout."""

    def loss(self, batch: ImageBatch) -> torch.Tensor:
        return functional.cross_entropy(self.logits(batch.pixels, batch.head), batch.right)

    def count_right(self, batch: ImageBatch) -> torch.Tensor:
        return count_right(self.logits(batch.pixels, batch.head), batch.right)

    def log_probabilities(self, batch: ImageBatch) -> torch.Tensor:
        return functional.log_softmax(self.logits(batch.pixels, batch.head), dim=1)

    def choice_log_probabilities(self, batch: ImageBatch) -> torch.Tensor:
        return self.log_probabilities(batch)

    @contextmanager
    def watched(self, receive: Receiver) -> Iterator[None]:
        """See `WatchedModel.watched`; the patch convolution and the final projection are not linear layers."""
        use_onednn(self._network.visual)  # torch's own attention bypasses the hooks of its modules
        with super().watched(receive):
            yield

    def logits(self, prepared: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Normalised image features times the head, float32 [N, C]."""
        # in nested autocast contexts the cache would keep casts of the previous weight set
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed, cache_enabled=False):
            features = self._network.encode_image(prepared)
        with torch.autocast(self.device.type, enabled=False):
            return functional.normalize(features.float(), dim=-1) @ head.T


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> ClipModel:
    """See `Family.load`; ``spec`` has ``architecture`` and, except for drawn tasks, ``preprocess``."""
    torch_device = cuda.choose(device)
    tensors = read_pretrained(weights)
    architecture = spec["architecture"]
    vocabulary = tensors.pop(VOCABULARY).tolist() if VOCABULARY in tensors else None
    with ZeroInitialised():
        network = build(architecture, None if vocabulary is None else len(vocabulary))
    tensors = {name.removeprefix(BUFFER_PREFIX): tensor for name, tensor in tensors.items()}
    expected = network.state_dict()
    check_tensors(weights, {name: tuple(tensor.shape) for name, tensor in expected.items()}, tensors)
    # assigned without a copy, because `FlatWeights` makes one
    names = [name for name, _ in network.named_parameters() if name.startswith(tensor_names.TRAINABLE)]
    trainable = {name: tensors.pop(name).to(expected[name].dtype) for name in names}
    network.load_state_dict(trainable, strict=False, assign=True)
    network.load_state_dict(tensors, strict=False)  # copies into float32
    if torch_device.type == "cuda":
        cuda.make_repeatable(tf32=precision == "tf32")
    settings = spec.get("preprocess")
    preprocess = prepare if settings is None else Preprocess(settings["size"], settings["mean"], settings["std"])
    tokenizer = functools.partial(_tokenizer, architecture, network.context_length, vocabulary)
    if torch_device.type == "cpu":
        use_onednn(network.visual)
    return ClipModel(network.to(torch_device), tokenizer, preprocess, precision)


def _tokenizer(architecture: str | Mapping[str, Any], context_length: int, vocabulary: list[int] | None) -> Tokenize:
    if vocabulary is not None:
        return Tokenizer(vocabulary, context_length)
    if not isinstance(architecture, str):
        return SimpleTokenizer(context_length=context_length)
    try:
        return open_clip.get_tokenizer(architecture)
    except OSError as error:  # some tokenizers are on the hub, such as SigLIP's
        raise TallmasksError(f"{architecture}: cannot download its tokenizer from the hub: {error}") from None
