"""The model family CLIP; torch and open_clip are imported only when needed."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.clip import tensor_names
from reproduction.models.clip.foreign_checkpoints import PUBLISHERS
from reproduction.models.families import HEAD, STATISTICS, ModelParams, Precision, refuse_keys
from reproduction.models.vision.image_examples import ImageExamples, open_examples
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError, nearest, short
from tallmasks.io import hub
from tallmasks.io.tensor_files import load_state
from tallmasks.methods.merges import Statistic
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reproduction.models.clip.network import ClipModel
    from reproduction.models.cuda import Wanted


class Clip:
    """open_clip's networks; trains the image encoder, with a frozen zero-shot head made from prompts."""

    unit = "images"
    imports = ("torch", "torch._dynamo", "open_clip")
    task_inputs = (HEAD,)
    publishers = PUBLISHERS

    def check(self, name: str, spec: ModelParams) -> None:
        refuse_keys(name, spec, ("adapter", "scoring", "heads"), "CLIP models")
        architecture = spec["architecture"]
        expected = image_size(architecture)
        if "preprocess" in spec and expected not in (None, found := spec["preprocess"]["size"]):
            raise TallmasksError(
                f"params.yaml: models.{name}.preprocess.size: found {found}, expected {expected}, the image size of the"
                " architecture"
            )

    def statistics(self, spec: ModelParams) -> tuple[Statistic, ...]:
        return tuple(STATISTICS)

    def settings(self, spec: ModelParams) -> dict[str, Any]:
        return {key: dict(spec[key]) for key in ("preprocess",) if key in spec}

    def training_settings(self, spec: ModelParams, task: Task, validates: bool) -> dict[str, Any]:
        return self.settings(spec)

    def initial_state(self, spec: ModelParams, pretrained: Path) -> dict[str, NDArray[Any]]:
        checkpoint = open_checkpoint(pretrained)
        names = (name for name in checkpoint.tensors if name.startswith(tensor_names.TRAINABLE))
        return {name: checkpoint.float32(name) for name in names}

    def parameter_counts(self, spec: ModelParams, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return tensor_names.parameter_counts(shapes)

    def layer_of(self, tensor: str) -> tuple[str, str]:
        return tensor_names.layer_of(tensor)

    def load(
        self, spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None
    ) -> ClipModel:
        from reproduction.models.clip import network

        return network.load(spec, weights, precision, device)

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> ImageExamples:
        return open_examples(path, load_state(task_files[HEAD])[HEAD])

    def convert_pretrained(self, spec: ModelParams, weights: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.clip import pretrained_weights

        return pretrained_weights.convert_pretrained(spec, weights)

    def download_pretrained(self, spec: ModelParams, pretrained: ModelParams) -> tuple[Path, dict[str, str]]:
        from reproduction.models.clip import pretrained_weights

        return pretrained_weights.download_pretrained(spec, pretrained)

    def pretrained_files(self, pretrained: ModelParams) -> tuple[tuple[str, ...], ...]:
        return ((pretrained["file"],) if "file" in pretrained else hub.OPEN_CLIP_FILES,)

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[np.float32]]:
        from reproduction.models.clip.foreign_checkpoints import convert

        return convert(open_checkpoint(path), open_checkpoint(pretrained), tensor_names.TRAINABLE)


@functools.cache
def architectures() -> tuple[str, ...]:
    """The names of open_clip's models, from its files, because importing it takes seconds."""
    return tuple(sorted(file.stem for file in (_open_clip() / "model_configs").glob("*.json")))


def image_size(architecture: str | Mapping[str, Any]) -> int | None:
    """The side of a network's images; None if they are not square. Raises TallmasksError if open_clip has no model of
    this name, or a setting that all models have is missing or of the wrong type."""
    if not isinstance(architecture, str):
        config: Mapping[str, Any] = architecture
    elif architecture in architectures():
        config = json.loads((_open_clip() / "model_configs" / f"{architecture}.json").read_text())
    else:
        raise TallmasksError(
            f"params.yaml: architecture: open_clip has no model {architecture!r}"
            f"{nearest(architecture, architectures())}; "
            "`python -c 'import open_clip; print(open_clip.list_models())'` lists them"
        )
    for key, kind, expected in (
        ("embed_dim", int, "a whole number"),
        ("vision_cfg", Mapping, "keys with values"),
        ("text_cfg", Mapping, "keys with values"),
    ):
        if not isinstance(config.get(key), kind):
            raise TallmasksError(
                f"params.yaml: architecture.{key}: found {short(config.get(key))}, expected {expected}"
            )
    size = config["vision_cfg"].get("image_size", 224)
    height, *width = size if isinstance(size, list) else [size]
    return height if set(width) <= {height} else None


def _open_clip() -> Path:
    package = importlib.util.find_spec("open_clip")
    assert package and package.origin
    return Path(package.origin).parent
