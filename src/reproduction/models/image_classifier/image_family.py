"""The model family of image classifiers; torch and transformers are imported only when needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.checkpoint_sources import Publisher, download
from reproduction.models.classifiers import settings as classifier_settings
from reproduction.models.classifiers.heads import TRAINED, unpacked_head
from reproduction.models.families import HEAD, STATISTICS, ModelParams, Precision, refuse_keys
from reproduction.models.vision.image_examples import ImageExamples, open_examples
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import load_state
from tallmasks.methods.merges import GRAMS, Statistic
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reproduction.models.cuda import Wanted
    from reproduction.models.image_classifier.image_network import ImageClassifierModel

HEADS = ("class_means", TRAINED)
SCORING = ("cosine_scale",)
NO_LINEAR_LAYERS = ("efficientnet", "mobilenet_v1", "mobilenet_v2", "regnet", "resnet")
"""Model types that consist of convolutions."""
_BUFFERS = "buffers."
_FILES = (("model.safetensors", "pytorch_model.bin"), ("config.json",), ("preprocessor_config.json", "config.json"))


class ImageClassifier:
    """Vision models of transformers with a head for each task, made from class means or trained."""

    unit = "images"
    imports = ("torch", "torch._dynamo", "transformers.models.auto.modeling_auto", "torchvision")
    task_inputs = (HEAD,)
    publishers: Mapping[str, Publisher] = {}

    def check(self, name: str, spec: ModelParams) -> None:
        refuse_keys(name, spec, ("adapter", "templates", "wording"), "image classifiers")
        if spec.get("heads") not in HEADS:
            raise TallmasksError(
                f"params.yaml: models.{name}.heads: found {spec.get('heads')!r}, expected one of {', '.join(HEADS)}"
            )
        if "image_processor_type" not in spec.get("preprocess", {}):
            raise TallmasksError(
                f"params.yaml: models.{name}.preprocess: found no image_processor_type; expected the settings of a "
                "preprocessor_config.json"
            )
        refuse_keys(f"{name}.scoring", spec.get("scoring", {}), set(spec.get("scoring", {})) - {*SCORING}, "they")
        settings = classifier_settings.settings_of(spec["architecture"], {})
        refuse_keys(f"{name}.architecture", settings, ("num_labels",), "image classifiers")
        if settings["model_type"] == "timm_wrapper":
            raise TallmasksError(
                f"params.yaml: models.{name}.architecture.model_type: found timm_wrapper, in which the head is a part "
                "of the body that is merged; expected a model type of transformers, such as vit"
            )

    def statistics(self, spec: ModelParams) -> tuple[Statistic, ...]:
        linear = spec["architecture"]["model_type"] not in NO_LINEAR_LAYERS
        return tuple(needed for needed in STATISTICS if needed is not GRAMS or linear)

    def trains_heads(self, spec: ModelParams) -> bool:
        return spec["heads"] == TRAINED

    def trained_head(self, checkpoint: Path) -> dict[str, NDArray[np.float32]]:
        return unpacked_head(checkpoint)

    def heads_from_examples(self, spec: ModelParams) -> bool:
        return spec["heads"] != TRAINED

    def settings(self, spec: ModelParams) -> dict[str, Any]:
        return {key: dict(spec[key]) for key in ("preprocess", "scoring") if key in spec}

    def training_settings(self, spec: ModelParams, task: Task, validates: bool) -> dict[str, Any]:
        return self.settings(spec)

    def initial_state(self, spec: ModelParams, pretrained: Path) -> dict[str, NDArray[Any]]:
        checkpoint = open_checkpoint(pretrained)
        return {name: checkpoint.float32(name) for name in checkpoint.names if not name.startswith(_BUFFERS)}

    def parameter_counts(self, spec: ModelParams, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return sum(math.prod(shape) for name, shape in shapes.items() if not name.startswith(_BUFFERS)), 0

    def layer_of(self, tensor: str) -> tuple[str, str]:
        return classifier_settings.layer_of(tensor)

    def load(
        self, spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None
    ) -> ImageClassifierModel:
        from reproduction.models.image_classifier import image_network

        return image_network.load(spec, weights, precision, device)

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> ImageExamples:
        return open_examples(path, load_state(task_files[HEAD]) if HEAD in task_files else {})

    def convert_pretrained(self, spec: ModelParams, weights: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.image_classifier import image_network

        return image_network.pretrained_state(spec, weights)

    def download_pretrained(self, spec: ModelParams, pretrained: ModelParams) -> tuple[Path, dict[str, str]]:
        return download(pretrained, self.pretrained_files(pretrained))

    def pretrained_files(self, pretrained: ModelParams) -> tuple[tuple[str, ...], ...]:
        weights, *others = _FILES
        return (pretrained["file"],) if "file" in pretrained else weights, *others

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.image_classifier import image_network

        return image_network.fine_tuned_state(spec, path)
