"""The model family of image classifiers; torch and transformers are imported only when needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.classifiers.classifier_family import ClassifierFamily
from reproduction.models.classifiers.heads import TRAINED
from reproduction.models.classifiers.settings import BUFFERS
from reproduction.models.families import HEAD, ModelParams, Precision
from reproduction.models.vision.image_examples import ImageExamples, open_examples
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import load_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reproduction.models.cuda import Wanted
    from reproduction.models.image_classifier.image_network import ImageClassifierModel


class ImageClassifier(ClassifierFamily):
    """Vision models of transformers with a head for each task, made from class means or trained."""

    unit, kind = "images", "image classifiers"
    imports = ("torch", "torch._dynamo", "transformers.models.auto.modeling_auto", "torchvision")
    heads = ("class_means", TRAINED)
    refused = ("adapter", "templates", "wording")
    scored_with = ("preprocess", "scoring")
    scoring = ("cosine_scale",)
    no_linear_layers = ("efficientnet", "mobilenet_v1", "mobilenet_v2", "regnet", "resnet")
    files = (("model.safetensors", "pytorch_model.bin"), ("config.json",), ("preprocessor_config.json", "config.json"))

    def check(self, name: str, spec: ModelParams) -> None:
        super().check(name, spec)
        if "image_processor_type" not in spec.get("preprocess", {}):
            raise TallmasksError(
                f"params.yaml: models.{name}.preprocess: found no image_processor_type; expected the settings of a "
                "preprocessor_config.json"
            )
        if self.network_settings(spec)["model_type"] == "timm_wrapper":
            raise TallmasksError(
                f"params.yaml: models.{name}.architecture.model_type: found timm_wrapper, in which the head is a part "
                "of the body that is merged; expected a model type of transformers, such as vit"
            )

    def heads_from_examples(self, spec: ModelParams) -> bool:
        return not self.trains_heads(spec)

    def is_trained(self, tensor: str) -> bool:
        return not tensor.startswith(BUFFERS)

    def load(
        self, spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None
    ) -> ImageClassifierModel:
        from reproduction.models.image_classifier import image_network

        return image_network.load(spec, weights, precision, device)

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> ImageExamples:
        return open_examples(path, load_state(task_files[HEAD]) if HEAD in task_files else {})

    def convert_pretrained(self, spec: ModelParams, weights: Path) -> dict[str, NDArray[Any]]:
        from transformers import AutoModelForImageClassification

        from reproduction.models.classifiers.weights import pretrained_state

        return pretrained_state(spec, weights, AutoModelForImageClassification)

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[Any]]:
        from transformers import AutoModelForImageClassification

        from reproduction.models.classifiers.weights import fine_tuned_state

        return fine_tuned_state(spec, path, AutoModelForImageClassification)
