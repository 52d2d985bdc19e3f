"""Pretrained CLIP weights from the hub, from open_clip's URLs or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
from numpy.typing import NDArray

from reproduction.models.checkpoint_sources import local_copy
from reproduction.models.clip.network import BUFFER_PREFIX, build
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io import hub
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import new_tensors
from tallmasks.vectors.checkpoints.weight_files import open_weight_files


def download_pretrained(spec: Mapping[str, Any], pretrained: Mapping[str, Any]) -> tuple[Path, dict[str, str]]:
    """Download the pretrained weights; returns the file and its origin.

    Args:
        spec: Has ``architecture``.
        pretrained: ``hub`` (a repository), ``file``, ``revision`` and optionally the file's ``sha256``; or a ``tag`` of
            open_clip, with a ``revision`` if it is on the hub.

    Raises TallmasksError if open_clip has no such tag, or the file is unavailable or its checksum is wrong.
    """
    repository, file = pretrained.get("hub"), pretrained.get("file")
    if repository is None:
        tagged = open_clip.pretrained.get_pretrained_cfg(spec["architecture"], pretrained["tag"])
        if not tagged:
            tags = open_clip.list_pretrained_tags_by_model(spec["architecture"])
            raise TallmasksError(
                f"params.yaml: pretrained.tag: open_clip has no weights {pretrained['tag']!r} for "
                f"{spec['architecture']}{nearest(pretrained['tag'], tags)}; available: {', '.join(tags) or 'none'}"
            )
        has_quick = bool((open_clip.get_model_config(spec["architecture"]) or {}).get("quick_gelu"))
        if (quick := bool(tagged.get("quick_gelu"))) != has_quick:
            name = spec["architecture"].removesuffix("-quickgelu") + "-quickgelu" * quick
            raise TallmasksError(
                f"params.yaml: architecture: found {spec['architecture']}, but the weights {pretrained['tag']!r} were "
                f"trained with{'' if quick else 'out'} QuickGELU; write {name}"
            )
        if not tagged.get("hf_hub"):
            try:
                path = Path(open_clip.pretrained.download_pretrained(tagged))
            except (OSError, RuntimeError) as error:  # no network, or a wrong sha256
                raise TallmasksError(f"{tagged['url']}: the download failed: {error}; try again later") from None
            return path, {"url": tagged["url"], "file": path.name}
        repository, _, file = tagged["hf_hub"].rpartition("/")
    files = (file,) if file else hub.OPEN_CLIP_FILES
    if copied := local_copy(pretrained, files):
        return copied, {"local": pretrained["local"]}
    return hub.with_origin(repository, files, pretrained.get("revision", "main"), pretrained.get("sha256"))


def convert_pretrained(spec: Mapping[str, Any], weights: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a whole model in safetensors or a state dict of torch.save, with the names that `load` expects.

    No code in the file is executed: open_clip gets a copy in safetensors.

    Raises TallmasksError if the file is damaged, contains more than tensors, or does not fit the architecture.
    """
    network = build(spec["architecture"])
    named = dict(network.named_parameters())
    checkpoint = open_weight_files({weights.name: weights}, title=str(weights))
    for name in checkpoint.names:
        info = checkpoint.info(name)
        if name.removeprefix("module.") in named and not info.is_float:  # counters are integers
            raise TallmasksError(f"{weights}: tensor {name!r} is {info.dtype}; expected unquantised floats")
    with TemporaryFolder() as folder:
        copied = folder / "weights.safetensors"
        infos = {name: checkpoint.info(name) for name in checkpoint.names}
        with new_tensors(copied, infos, {}) as new:
            for name, info in infos.items():
                new.raw[name][...] = checkpoint.raw_bytes(name, 0, info.size)
        try:
            open_clip.load_checkpoint(network, str(copied), strict=True)
        except Exception as error:  # many types, depending on the damage
            raise TallmasksError(
                f"{weights}: open_clip cannot read it as weights of {spec['architecture']}: "
                f"{' '.join(str(error).split())}. Expected safetensors, or a state dict saved by torch.save"
            ) from None
    tensors = {
        name if name in named else BUFFER_PREFIX + name: tensor.numpy() for name, tensor in network.state_dict().items()
    }
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise TallmasksError(f"{weights}: tensor {name!r} contains NaN or infinity; download the file again")
    return tensors
