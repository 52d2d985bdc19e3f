"""What the families of classifiers share; torch and transformers are imported only when needed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reproduction.models.checkpoint_sources import Publisher, download
from reproduction.models.classifiers import settings as classifier_settings
from reproduction.models.classifiers.heads import TRAINED, unpacked_head
from reproduction.models.families import HEAD, STATISTICS, ModelParams, refuse_keys
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.methods.merges import GRAMS, Statistic
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ClassifierFamily:
    """Networks of transformers with a head for each task, frozen or trained. A derived class has the other methods of
    `reproduction.models.families.Family`.

    Attributes:
        kind: the plural noun for messages.
        refused: keys of params.yaml that only other families have.
        scored_with: keys of params.yaml that scores depend on, besides the network's.
        no_linear_layers: model types without `torch.nn.Linear`.
        files: see `Family.pretrained_files`.
    """

    kind: ClassVar[str]
    heads: ClassVar[tuple[str, ...]]
    refused: ClassVar[tuple[str, ...]]
    scored_with: ClassVar[tuple[str, ...]] = ("scoring",)
    scoring: ClassVar[tuple[str, ...]]
    no_linear_layers: ClassVar[Collection[str]]
    files: ClassVar[tuple[tuple[str, ...], ...]]
    architectures: ClassVar[classifier_settings.Architectures] = {}
    task_inputs = (HEAD,)
    publishers: ClassVar[Mapping[str, Publisher]] = {}

    def check(self, name: str, spec: ModelParams) -> None:
        refuse_keys(name, spec, self.refused, self.kind)
        if spec.get("heads") not in self.heads:
            raise TallmasksError(
                f"params.yaml: models.{name}.heads: found {spec.get('heads')!r}, expected one of "
                f"{', '.join(self.heads)}"
            )
        refuse_keys(f"{name}.scoring", spec.get("scoring", {}), set(spec.get("scoring", {})) - {*self.scoring}, "they")
        refuse_keys(f"{name}.architecture", self.network_settings(spec), ("num_labels",), self.kind)

    def network_settings(self, spec: ModelParams) -> dict[str, Any]:
        return classifier_settings.settings_of(spec["architecture"], self.architectures)

    def statistics(self, spec: ModelParams) -> tuple[Statistic, ...]:
        linear = self.network_settings(spec)["model_type"] not in self.no_linear_layers
        return tuple(needed for needed in STATISTICS if needed is not GRAMS or linear)

    def trains_heads(self, spec: ModelParams) -> bool:
        return spec["heads"] == TRAINED

    def trained_head(self, checkpoint: Path) -> dict[str, NDArray[np.float32]]:
        """The tensors of the head that was trained with a checkpoint, by transformers' names."""
        return unpacked_head(checkpoint)

    def settings(self, spec: ModelParams) -> dict[str, Any]:
        return {key: dict(spec[key]) for key in self.scored_with if key in spec}

    def training_settings(self, spec: ModelParams, task: Task, validates: bool) -> dict[str, Any]:
        return self.settings(spec)

    def is_trained(self, tensor: str) -> bool:
        """Whether a tensor of a pretrained file is fine-tuned."""
        raise NotImplementedError

    def initial_state(self, spec: ModelParams, pretrained: Path) -> dict[str, NDArray[Any]]:
        checkpoint = open_checkpoint(pretrained)
        return {name: checkpoint.float32(name) for name in checkpoint.names if self.is_trained(name)}

    def parameter_counts(self, spec: ModelParams, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return sum(math.prod(shape) for name, shape in shapes.items() if self.is_trained(name)), 0

    def layer_of(self, tensor: str) -> tuple[str, str]:
        return classifier_settings.layer_of(tensor)

    def download_pretrained(self, spec: ModelParams, pretrained: ModelParams) -> tuple[Path, dict[str, str]]:
        return download(pretrained, self.pretrained_files(pretrained))

    def pretrained_files(self, pretrained: ModelParams) -> tuple[tuple[str, ...], ...]:
        weights, *others = self.files
        return (pretrained["file"],) if "file" in pretrained else weights, *others
