"""Imports fine-tuned CLIP image encoders of other publishers.

A checkpoint is a state dict of open_clip or of transformers' CLIPVisionModel.  The text transformer can be missing, and
names can have a prefix such as ``model.``.  Frozen tensors in it must equal the pretrained ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from reproduction.models.checkpoint_sources import Publisher
from reproduction.models.foreign_weights import SAME, check_names, float_array, without_prefix
from reproduction.tasks.titles import TITLES
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint


def _without_activation(architecture: str) -> str:
    return architecture.removesuffix("-quickgelu")


PUBLISHERS = {
    "published": Publisher(  # by the paper's authors
        models={"ViT-B-32": "ViT-B-32", "ViT-B-16": "VIT-B-16", "ViT-L-14": "ViT-L-14"},
        tasks=TITLES,
        repository=lambda model, task: "nik-dim/tall_masks",
        architecture=_without_activation,
        file=lambda model, task: f"single_task/{model}/{task}Val/nonlinear_finetuned.pt",
        # main, half a year after its last change ("updated zeroshot"); the hub's file list shows only this prefix
        revision="c8d352f",
        generation="the second, which the authors put in the paper's place by December 2024 (DTD fine-tuned anew)",
    ),
    "fusionbench": Publisher(  # Tang et al. 2024; their EMNIST is the letters split, not the paper's digits
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


Sources = dict[str, tuple[str, ...]]
"""For each of open_clip's tensor names, the checkpoint's tensors that are concatenated along the first axis."""


def convert(checkpoint: Checkpoint, pretrained: Checkpoint, trainable: str) -> dict[str, NDArray[np.float32]]:
    """The checkpoint's tensors with the prefix ``trainable``, in float32, under open_clip's names.

    Raises TallmasksError if a tensor is missing, unexpected, of another shape, or not of finite floats, or if a frozen
    tensor differs from the pretrained one.
    """
    converted = {}
    for name, source in sorted(matched(checkpoint, pretrained, trainable).items()):
        values = joined(checkpoint, source, pretrained.shapes[name])
        if name.startswith(trainable):
            converted[name] = values
        elif np.abs(values - pretrained.float32(name)).max(initial=0) > SAME:
            raise TallmasksError(
                f"{checkpoint.title}: the frozen tensor {name!r} differs from the pretrained one, so the model was "
                "fine-tuned from other weights. Set `pretrained` to those"
            )
    projection = f"{trainable}proj"  # not in CLIPVisionModel
    kept = {projection: pretrained.float32(projection)} if projection in pretrained.tensors else {}
    return dict(sorted((kept | converted).items()))


def joined(checkpoint: Checkpoint, source: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One of open_clip's tensors, float32.  Raises TallmasksError if a part has another shape or is not finite."""
    if source[0].endswith(_TRANSPOSED):
        return np.ascontiguousarray(float_array(checkpoint, source[0], shape[::-1]).T)
    if len(source) == 1:
        return float_array(checkpoint, source[0], shape)
    return np.concatenate([float_array(checkpoint, name, (shape[0] // len(source), *shape[1:])) for name in source])


def matched(checkpoint: Checkpoint, pretrained: Checkpoint, trainable: str) -> Sources:
    """The sources of all trainable tensors, and of the frozen ones that the checkpoint contains."""
    wanted = {name for name in pretrained.tensors if name.startswith(trainable)}
    if any(_OF_TRANSFORMERS in name for name in checkpoint.names):
        sources = from_transformers(without_prefix(checkpoint, _OF_TRANSFORMERS), trainable)
        wanted -= {f"{trainable}proj"}
    else:
        sources = {name: (theirs,) for name, theirs in without_prefix(checkpoint, min(wanted)).items()}
    expected = "a checkpoint of the architecture in params.yaml, with open_clip's or transformers' names"
    check_names(checkpoint, sources, wanted, pretrained.tensors, expected)
    return sources


_OF_TRANSFORMERS = "embeddings.class_embedding"
_TRANSFORMERS = (  # pattern of a name in transformers' CLIPVisionModel, open_clip's name
    (r"embeddings\.class_embedding", r"class_embedding"),
    (r"embeddings\.patch_embedding\.weight", r"conv1.weight"),
    (r"embeddings\.position_embedding\.weight", r"positional_embedding"),
    (r"pre_layrnorm\.(\w+)", r"ln_pre.\1"),
    (r"post_layernorm\.(\w+)", r"ln_post.\1"),
    (r"encoder\.layers\.(\d+)\.layer_norm([12])\.(\w+)", r"transformer.resblocks.\1.ln_\2.\3"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc1\.(\w+)", r"transformer.resblocks.\1.mlp.c_fc.\2"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc2\.(\w+)", r"transformer.resblocks.\1.mlp.c_proj.\2"),
    (r"encoder\.layers\.(\d+)\.self_attn\.out_proj\.(\w+)", r"transformer.resblocks.\1.attn.out_proj.\2"),
    (r"encoder\.layers\.(\d+)\.self_attn\.[qkv]_proj\.(\w+)", r"transformer.resblocks.\1.attn.in_proj_\2"),
    (r"visual_projection\.weight", r"proj"),
)
_TRANSPOSED = "visual_projection.weight"


def from_transformers(names: Mapping[str, str], prefix: str) -> Sources:
    """The sources of open_clip's tensors in transformers' CLIPVisionModel or CLIPVisionModelWithProjection.

    open_clip stores queries, keys and values in one matrix.  Unknown names are kept.

    Args:
        names: The checkpoint's names by transformers' names.
        prefix: Prefix of open_clip's names.
    """
    sources: Sources = {}
    for name in sorted(names, key=lambda name: name.replace(".q_proj.", ".a_proj.")):  # queries, keys, values
        if name != "embeddings.position_ids":  # a counter in files of older releases
            ours = (prefix + re.sub(f"^{old}$", new, name) for old, new in _TRANSFORMERS if re.fullmatch(old, name))
            target = next(ours, name)
            sources[target] = (*sources.get(target, ()), names[name])
    return sources
