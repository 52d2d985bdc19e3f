"""CLIP models, built by open_clip.

A pretrained file holds open_clip's own tensor names in float32 or float16; what a network keeps beside its parameters
(the statistics of a ResNet's batch normalisation) stands behind ``buffers.``. The text tower of the tiny model knows
only the words that the prompts use: ``tokenizer.vocabulary`` lists their numbers in open_clip's tokenizer, in
ascending order, and row i of ``token_embedding.weight`` belongs to entry i. The end-of-text token has the largest
number and so stays the largest, which is how CLIP finds the end of a prompt.
"""

import functools
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.tokenizer import SimpleTokenizer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tallmasks.models import Precision, cuda
from tallmasks.models.clip import tensor_names as naming
from tallmasks.models.clip.onednn import use_onednn
from tallmasks.models.imports import float_types, oddness, read_state
from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.tasks import Task

VOCABULARY = "tokenizer.vocabulary"  # int64 [V] in the pretrained file
TRAINABLE_PREFIX = naming.FAMILIES["clip"].trainable
BUFFER_PREFIX = "buffers."

Tokenize = Callable[[Sequence[str]], torch.Tensor]


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


def build(architecture: str | Mapping[str, Any], vocabulary_size: int | None = None) -> CLIP | CustomTextCLIP:
    """open_clip's network with random weights, on the default device.

    Args:
        architecture: The name of an open_clip model, or open_clip's configuration of a plain CLIP: ``embed_dim``,
            ``vision_cfg``, ``text_cfg``.
        vocabulary_size: Rows of the token embedding, where it is not the configuration's.

    Raises:
        TallmasksError: If open_clip knows no model of that name.
    """
    config = open_clip.get_model_config(architecture) if isinstance(architecture, str) else dict(architecture)
    if config is None:
        known = open_clip.list_models()
        raise TallmasksError(
            f"params.yaml: architecture: open_clip has no model {architecture!r}{nearest(str(architecture), known)}; "
            "`python -c 'import open_clip; print(open_clip.list_models())'` lists them"
        )
    if vocabulary_size is not None:
        config["text_cfg"] = {**config["text_cfg"], "vocab_size": vocabulary_size}
    if "timm_model_name" in config["vision_cfg"]:
        config["vision_cfg"]["timm_model_pretrained"] = False  # all weights come from one file
    has_own_text_tower = "hf_model_name" in config["text_cfg"]
    if has_own_text_tower:
        config["text_cfg"]["hf_model_pretrained"] = False
    custom = config.pop("custom_text", False) or has_own_text_tower
    return CustomTextCLIP(**config) if custom else CLIP(**config)


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes the network's input.

    Attributes:
        size: Pixels to a side.
        mean: Of the three channels in 0 to 1, subtracted.
        std: Of the three channels; divides.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 [N, H, W, 3] as float32 [N, 3, size, size]; resized as Pillow does it, to whole numbers."""
        pixels = images.permute(0, 3, 1, 2).float()
        mean, std = (_row(tuple(values), pixels.device) for values in (self.mean, self.std))
        if pixels.shape[2:] != (self.size, self.size):
            size = [self.size, self.size]
            pixels = functional.interpolate(pixels, size, mode="bicubic", antialias=True).round_().clamp_(0, 255)
        return pixels.div_(255).sub_(mean).div_(std)


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)  # it outlives the mode of whoever asks first
def _row(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """A value per channel, float32 [1, 3, 1, 1], brought to a device once."""
    return torch.tensor(values, device=device).view(1, 3, 1, 1)


def prepare(images: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
    """Images uint8 [N, H, W, 3] as float32 [N, 3, H, W] in -1 to 1: what the drawn tasks' model takes."""
    return torch.as_tensor(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


class ClipModel:
    """A CLIP network with its visual tower in one flat buffer; satisfies :class:`tallmasks.models.Model`.

    Args:
        network: The network, with its weights loaded, on the device where it is to stay.
        tokenize: Turns prompts into its tokens.
        preprocess: Turns images into its input.
        precision: Of the image tower's products.
    """

    def __init__(
        self,
        network: CLIP | CustomTextCLIP,
        tokenize: Tokenize,
        preprocess: Callable[[torch.Tensor], torch.Tensor] = prepare,
        precision: Precision = "float32",
    ) -> None:
        self._network = network.eval().requires_grad_(False)
        self._tokenize, self._preprocess = tokenize, preprocess
        self._mixed = precision == "bfloat16"
        self.device = network.logit_scale.device
        if self.device.type == "cpu":
            use_onednn(self._network.visual)
        size = network.visual.image_size
        self.image_size: int = size[0] if isinstance(size, tuple) else size
        named = {name: p for name, p in network.named_parameters() if name.startswith(TRAINABLE_PREFIX)}
        self.trainable: tuple[str, ...] = tuple(sorted(named))
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(named[name].shape) for name in self.trainable}
        self._parameters = [named[name].requires_grad_(True) for name in self.trainable]
        self._pretrained = torch.cat([parameter.detach().reshape(-1).float() for parameter in self._parameters])
        self._flat = self._pretrained
        self.use(self._pretrained)

    @property
    def flat(self) -> torch.Tensor:
        """The buffer in use.  It may be written to, so the pretrained weights are copied when it is first asked for."""
        if self._flat is self._pretrained:
            self.use(self._pretrained.clone())
        return self._flat

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        """Take the weights from another buffer, float32 [P'] on ``device``; copies nothing.  Returns the former one."""
        former, self._flat = self._flat, flat
        for parameter, view in zip(self._parameters, self._views(), strict=True):
            parameter.data = view
        return former

    def _views(self) -> list[torch.Tensor]:
        pieces = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def pretrained_flat(self) -> torch.Tensor:
        """The trainable tensors as they were loaded, float32 [P']; not a copy, so not to be written to."""
        return self._pretrained

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters in the order of ``trainable``, for an optimizer: views of ``flat``."""
        _ = self.flat
        return list(self._parameters)

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the trainable tensors by name, float32, as a checkpoint stores them."""
        return {name: view.cpu().numpy().copy() for name, view in zip(self.trainable, self._views(), strict=True)}

    def parameter_counts(self) -> tuple[int, int]:
        """P' and F of the paper's storage formula. The text transformer is in neither, as in the paper."""
        return _counts(self._network)

    @torch.no_grad()
    def head(self, task: Task) -> torch.Tensor:
        """The frozen zero-shot head, float32 [C, D].

        A class is the normalised mean over the templates of normalised text embeddings, times exp(logit scale).
        """
        rows = []
        for label in range(len(task.classes)):
            tokens = self._tokenize(task.prompts(label)).to(self.device)
            embedded = self._network.encode_text(tokens, normalize=True)
            rows.append(functional.normalize(embedded.mean(dim=0), dim=0))
        return (torch.stack(rows) * self._network.logit_scale.exp()).cpu()

    def prepare(self, images: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
        """Images uint8 [N, H, W, 3] as the network takes them, float32 on ``device``."""
        return self._preprocess(cuda.upload(torch.as_tensor(images), self.device))

    def logits(self, prepared: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Scores float32 [N, C]: normalised image features times the head."""
        # without the cache, which keeps a weight's cast beyond a change of weight sets where contexts are nested
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed, cache_enabled=False):
            features = self._network.encode_image(prepared)
        with torch.autocast(self.device.type, enabled=False):
            return functional.normalize(features.float(), dim=-1) @ head.T


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> ClipModel:
    """The model of a specification with the weights of a pretrained file.

    Args:
        spec: ``architecture`` (see `build`), and ``preprocess`` where images are not the drawn tasks'.
        weights: A pretrained file as this module's docstring says.
        precision: Of the image tower's products.
        device: Where it is to be; a GPU if there is one, where nothing is said.

    Raises:
        TallmasksError: If the file is missing or damaged, its tensors are not those of the architecture, or a GPU is
            asked for and cannot be had.
    """
    place = cuda.choose(device)
    try:
        tensors = load_file(weights)
    except FileNotFoundError:
        raise TallmasksError(
            f"{weights}: no such file. The tiny model ships with the project: `git checkout` restores it, and "
            "`snakemake pretrain_tiny` makes it anew. Any other is what `pretrained` in params.yaml says."
        ) from None
    except SafetensorError as error:
        raise TallmasksError(f"{weights}: not a whole safetensors file ({error}). Restore or remake it.") from None
    architecture = spec["architecture"]
    vocabulary = tensors.pop(VOCABULARY).tolist() if VOCABULARY in tensors else None
    with _Uninitialised():
        network = build(architecture, None if vocabulary is None else len(vocabulary))
    tensors = {name.removeprefix(BUFFER_PREFIX): tensor for name, tensor in tensors.items()}
    _check(weights, network.state_dict(), tensors)
    network.load_state_dict(tensors)  # copies into float32
    if place.type == "cuda":
        _make_repeatable()
    settings = spec.get("preprocess")
    preprocess = prepare if settings is None else Preprocess(settings["size"], settings["mean"], settings["std"])
    model = ClipModel(
        network.to(place), _tokenizer(architecture, network.context_length, vocabulary), preprocess, precision
    )
    if isinstance(preprocess, Preprocess) and preprocess.size != model.image_size:
        raise TallmasksError(
            f"params.yaml: preprocess.size is {preprocess.size}, and {architecture} takes {model.image_size} pixels"
        )
    return model


class _Uninitialised(TorchFunctionMode):
    """Leaves out drawing initial weights, which take seconds, where all of them are loaded from a file anyway."""

    _DRAWN = ("normal_", "uniform_", "trunc_normal_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", None) in self._DRAWN:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _make_repeatable() -> None:
    """Have a GPU compute the same bits from the same input, and float32 where float32 is asked for."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is computed
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # nobody reads any
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _tokenizer(architecture: str | Mapping[str, Any], context_length: int, vocabulary: list[int] | None) -> Tokenize:
    if vocabulary is not None:
        return Tokenizer(vocabulary, context_length)
    if not isinstance(architecture, str):
        return SimpleTokenizer(context_length=context_length)
    try:
        return open_clip.get_tokenizer(architecture)
    except OSError as error:  # a tokenizer from the hub, as SigLIP's
        raise TallmasksError(f"{architecture}: its tokenizer could not be had from the hub: {error}") from None


def parameter_counts(spec: Mapping[str, Any]) -> tuple[int, int]:
    """P' and F of the paper's storage formula from the architecture alone, built without memory for its weights."""
    with torch.device("meta"):
        return _counts(build(spec["architecture"]))


def _counts(network: torch.nn.Module) -> tuple[int, int]:
    return naming.parameter_counts("clip", {name: tuple(p.shape) for name, p in network.named_parameters()})


def download_pretrained(spec: Mapping[str, Any], pretrained: Mapping[str, Any]) -> tuple[Path, dict[str, str]]:
    """The file of pretrained weights that params.yaml names, and where it comes from, for the provenance.

    Args:
        spec: ``architecture``.
        pretrained: ``hub`` (a repository), ``file`` in it, ``revision`` and optionally the file's ``sha256``; or
            ``tag``, one of open_clip's for this architecture, with a ``revision`` if it lies on the hub.

    Raises:
        TallmasksError: If open_clip knows no such tag, or the file cannot be had or is another.
    """
    repository, files, revision = pretrained.get("hub"), [pretrained.get("file")], pretrained.get("revision", "main")
    if repository is None:
        known = open_clip.pretrained.get_pretrained_cfg(spec["architecture"], pretrained["tag"])
        if not known:
            tags = open_clip.list_pretrained_tags_by_model(spec["architecture"])
            raise TallmasksError(
                f"params.yaml: pretrained.tag: open_clip has no weights {pretrained['tag']!r} for "
                f"{spec['architecture']}{nearest(pretrained['tag'], tags)}; it has {', '.join(tags) or 'none'}"
            )
        if not known.get("hf_hub"):
            try:
                path = Path(open_clip.pretrained.download_pretrained(known))
            except (OSError, RuntimeError) as error:  # no network, or another sha256 than open_clip knows
                raise TallmasksError(f"{known['url']}: the download failed: {error}; try again where it is") from None
            return path, {"url": known["url"], "file": path.name}
        repository, _, file = known["hf_hub"].rpartition("/")
        files = [file]
    path = _first_of([file for file in files if file] or list(hub.OPEN_CLIP_FILES), repository, revision)
    if "sha256" in pretrained:
        hub.check_sha256(path, pretrained["sha256"], hub.address(repository, path.name, revision))
    return path, {"repository": repository, "file": path.name, "commit": hub.commit_of(path) or revision}


def _first_of(files: Sequence[str], repository: str, revision: str) -> Path:
    """The first of some files that a repository has."""
    for file in files[:-1]:
        try:
            return hub.download(repository, file, revision)
        except hub.NoSuchFile:
            continue
    return hub.download(repository, files[-1], revision)


def convert_pretrained(spec: Mapping[str, Any], weights: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a file of whole-model weights, in any form that open_clip reads, as `load` takes them.

    Nothing in the file is executed: it is safetensors, or torch's format read with ``weights_only``.

    Raises:
        TallmasksError: If the file is damaged, holds more than tensors, or is not of the architecture.
    """
    network = build(spec["architecture"])
    named = dict(network.named_parameters())
    if weights.suffix != ".npz":
        for name, tensor in read_state(weights).items():
            is_weight = name.removeprefix("module.") in named  # beside them lie counters, in whole numbers
            if odd := oddness(tensor) or (
                f"of {tensor.dtype}" if is_weight and tensor.dtype not in float_types() else ""
            ):
                raise TallmasksError(f"{weights}: tensor {name!r} is {odd}; expected plain weights in floats")
    try:
        open_clip.load_checkpoint(network, str(weights), strict=True, weights_only=True)
    except Exception as error:  # the readers raise anything on a file that was cut or changed
        pickled = isinstance(error, pickle.UnpicklingError)
        why = "it holds more than tensors by name" if pickled else " ".join(str(error).split())
        raise TallmasksError(
            f"{weights}: open_clip cannot read it as weights of {spec['architecture']}: {why}. Expected safetensors, "
            "or a state dict that torch.save wrote; code in files is not run"
        ) from None
    tensors = {
        name if name in named else BUFFER_PREFIX + name: tensor.numpy() for name, tensor in network.state_dict().items()
    }
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise TallmasksError(f"{weights}: tensor {name!r} holds NaN or infinity; download it again")
    return tensors


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
