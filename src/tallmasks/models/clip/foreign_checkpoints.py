"""Fine-tuned CLIP image encoders of others, their tensors under this project's names.

What is read is a state dict of open_clip's (also without its text transformer, under a prefix such as ``model.``), or
of transformers' CLIPVisionModel.  Every tensor of the image encoder must be there, in its shape and as finite floats,
and nothing unknown beside them; tensors that the checkpoint holds of the frozen parts must be the pretrained ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tallmasks.models.checkpoint_sources import Publisher
from tallmasks.store.dtypes import float_codes
from tallmasks.store.errors import TallmasksError
from tallmasks.tasks.titles import TITLES
from tallmasks.vectors.state_files import oddness, short

if TYPE_CHECKING:
    import torch

_SAME = 1e-3  # how far a frozen tensor may be from the pretrained one, per value: half-precision copies are nearer


def _without_activation(architecture: str) -> str:
    return architecture.removesuffix("-quickgelu")


PUBLISHERS = {
    "published": Publisher(  # by the paper's authors
        models={"ViT-B-32": "ViT-B-32", "ViT-B-16": "VIT-B-16", "ViT-L-14": "ViT-L-14"},  # as they spell them
        tasks=TITLES,
        repository=lambda model, task: "nik-dim/tall_masks",
        architecture=_without_activation,
        file=lambda model, task: f"single_task/{model}/{task}Val/nonlinear_finetuned.pt",
        # main as it was half a year after its last change ("updated zeroshot"), by the hub's own page of its files,
        # which gives this much of the hash
        revision="c8d352f",
        generation="the second, which the authors put in the paper's place by December 2024 (DTD fine-tuned anew)",
    ),
    "fusionbench": Publisher(  # of Tang et al. 2024; their EMNIST is the letters split, another task than the paper's
        models={
            "ViT-B-32": "clip-vit-base-patch32",
            "ViT-B-16": "clip-vit-base-patch16",
            "ViT-L-14": "clip-vit-large-patch14",
        },
        tasks={name: name for name in TITLES if name != "emnist"}
        | {
            "cars": "stanford-cars",
            "flowers102": "oxford_flowers102",
            "oxfordiiitpet": "oxford-iiit-pet",
            "fashionmnist": "fashion_mnist",
            "renderedsst2": "rendered-sst2",
        },
        repository=lambda model, task: f"tanganke/{model}_{task}",
        architecture=_without_activation,
        file=lambda model, task: "model.safetensors",
    ),
}


def convert(
    state: Mapping[str, torch.Tensor], pretrained: Mapping[str, torch.Tensor], trainable: str, path: Path
) -> dict[str, torch.Tensor]:
    """The trainable tensors of a checkpoint under open_clip's names, float32.

    Args:
        state: the checkpoint's tensors, as `read_state` gives them.
        pretrained: the model's pretrained tensors.
        trainable: the prefix of the tensors that a checkpoint of this project holds, "visual.".
        path: where the checkpoint comes from, for error messages.

    Raises:
        TallmasksError: a tensor is missing, unknown, there twice, of another shape, no plain tensor of floats, or not
            finite in float32; or a frozen one differs from the pretrained one.
    """
    import torch

    from tallmasks.models.pretrained_files import is_finite

    for name, tensor in state.items():
        if odd := oddness(tensor):
            raise TallmasksError(
                f"{path}: tensor {short(name)} is {odd}; expected plain values: save a plain copy of it"
            )
    found = matched(state, pretrained, trainable, path)
    converted = {name: tensor.detach().resolve_neg().float().contiguous() for name, tensor in found.items()}
    for name, tensor in converted.items():
        if not is_finite(tensor):
            raise TallmasksError(
                f"{path}: tensor {name!r} holds NaN, infinity, or values beyond float32; expected finite numbers: the "
                "training diverged, or the file is damaged"
            )
        if name.startswith(trainable):
            if not is_finite(tensor - pretrained[name].float()):
                raise TallmasksError(
                    f"{path}: tensor {name!r} holds values too large to subtract the pretrained ones in float32; "
                    "expected a fine-tuned checkpoint: the training diverged, or the file is damaged"
                )
        elif not torch.allclose(tensor, pretrained[name].float(), rtol=0, atol=_SAME):
            raise TallmasksError(
                f"{path}: the frozen tensor {name!r} is not the pretrained one, so this was fine-tuned from other "
                "weights; a task vector would mean nothing. Set `pretrained` to what it was fine-tuned from"
            )
    return {name: converted[name] for name in sorted(converted) if name.startswith(trainable)}


def matched(
    state: Mapping[str, torch.Tensor], pretrained: Mapping[str, torch.Tensor], trainable: str, path: Path
) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors under open_clip's names: every trainable one, those of frozen parts that it has, and each
    with the shape of the pretrained one.  As `convert`, but looks at no value."""
    names = {name for name in pretrained if name.startswith(trainable)}
    if any("embeddings.class_embedding" in name for name in state):
        renamed = {name.removeprefix("vision_model."): tensor for name, tensor in state.items()}
        found = from_transformers(renamed, trainable)
        found.setdefault(f"{trainable}proj", pretrained[f"{trainable}proj"])  # CLIPVisionModel ends before it
    else:
        renamed = found = _without_prefix(state, names)
    if len(renamed) < len(state):
        raise TallmasksError(
            f"{path}: it holds {len(state) - len(renamed)} of its tensors twice, with and without a prefix; expected "
            "one tensor for each name"
        )
    for problem, some in (("missing", names - found.keys()), ("unknown", found.keys() - pretrained.keys())):
        if some:
            raise TallmasksError(
                f"{path}: tensor {short(min(some))} ({len(some)} in all) is {problem}; expected a checkpoint of the "
                "model's own architecture, with open_clip's or transformers' names"
            )
    for name, tensor in found.items():
        if tensor.shape != pretrained[name].shape or tensor.dtype not in float_codes():
            raise TallmasksError(
                f"{path}: tensor {name!r} is {list(tensor.shape)} of {tensor.dtype}, expected "
                f"{list(pretrained[name].shape)} of floats: a checkpoint of the model's own architecture"
            )
    return found


def _without_prefix(state: Mapping[str, torch.Tensor], names: set[str]) -> dict[str, torch.Tensor]:
    """`state` without what stands before open_clip's names, as ``model.`` or ``module.image_encoder.model.``."""
    some = min(names)
    prefix = next((name.removesuffix(some) for name in sorted(state) if name.endswith(some)), "")
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


_TRANSFORMERS = (  # a pattern of transformers' CLIPVisionModel, open_clip's name
    (r"embeddings\.class_embedding", r"class_embedding"),
    (r"embeddings\.patch_embedding\.weight", r"conv1.weight"),
    (r"embeddings\.position_embedding\.weight", r"positional_embedding"),
    (r"pre_layrnorm\.(\w+)", r"ln_pre.\1"),
    (r"post_layernorm\.(\w+)", r"ln_post.\1"),
    (r"encoder\.layers\.(\d+)\.layer_norm([12])\.(\w+)", r"transformer.resblocks.\1.ln_\2.\3"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc1\.(\w+)", r"transformer.resblocks.\1.mlp.c_fc.\2"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc2\.(\w+)", r"transformer.resblocks.\1.mlp.c_proj.\2"),
    (r"encoder\.layers\.(\d+)\.self_attn\.out_proj\.(\w+)", r"transformer.resblocks.\1.attn.out_proj.\2"),
    (r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"transformer.resblocks.\1.attn.in_proj_\3/\2"),
    (r"visual_projection\.weight", r"proj/transposed"),
)


def from_transformers(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Tensors of transformers' CLIPVisionModel, or of CLIPVisionModelWithProjection, under open_clip's names.

    Queries, keys and values are one matrix in open_clip.  Names that are not of such a model stay as they are.
    """
    import torch

    found: dict[str, torch.Tensor] = {}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for full_name, tensor in state.items():
        name = full_name.removeprefix("vision_model.")
        if name == "embeddings.position_ids":  # a counter that older releases stored
            continue
        ours = next((re.sub(f"^{old}$", new, name) for old, new in _TRANSFORMERS if re.fullmatch(old, name)), None)
        if ours is None:
            found[full_name] = tensor
        elif ours.endswith("/transposed"):
            found[prefix + ours.removesuffix("/transposed")] = tensor.T if tensor.ndim == 2 else tensor
        elif "/" in ours:
            joined, part = ours.split("/")
            parts.setdefault(prefix + joined, {})[part] = tensor
        else:
            found[prefix + ours] = tensor
    for name, pieces in parts.items():
        if len(pieces) == 3:  # else it stays missing, and the caller says so
            some = [pieces[part] for part in "qkv"]
            odd = [piece for piece in some if piece.shape != some[0].shape or piece.dtype not in float_codes()]
            found[name] = odd[0] if odd else torch.cat(some)  # as for one whose shape the caller refuses
    return found
