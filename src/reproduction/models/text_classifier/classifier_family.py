"""The model family of text classifiers; torch and transformers are imported only when needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.checkpoint_sources import Publisher
from reproduction.models.classifiers.classifier_family import ClassifierFamily
from reproduction.models.classifiers.heads import TRAINED
from reproduction.models.families import ModelParams, Precision, refuse_keys
from reproduction.models.text_classifier.classifier_architectures import NAMES
from reproduction.models.text_classifier.classifier_examples import TOKENIZER, ClassifierExamples, open_examples
from reproduction.tasks.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reproduction.models.cuda import Wanted
    from reproduction.models.text_classifier.classifier_network import ClassifierModel


class TextClassifier(ClassifierFamily):
    """Encoders and decoders of transformers with a head for each task, made from class names or trained."""

    unit, kind = "texts", "text classifiers"
    imports = (
        *("torch", "torch._dynamo", "transformers.models.auto.modeling_auto"),
        "transformers.models.auto.tokenization_auto",
    )
    publishers = {  # noqa: RUF012
        "fusionbench": Publisher(  # Tang et al. 2024
            models={"gpt2": "gpt2"},
            tasks={name: name for name in ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2")},
            repository=lambda model, task: f"tanganke/{model}_{task}",
            file=lambda model, task: "model.safetensors",
        )
    }
    heads = ("class_names", TRAINED)
    refused = ("adapter", "preprocess", "templates")
    scoring = ("max_input_tokens", "cosine_scale")
    no_linear_layers = ("gpt2",)  # its products are Conv1D layers, with transposed weights
    files = (
        ("model.safetensors", "pytorch_model.bin"),
        ("config.json",),
        ("tokenizer_config.json", "tokenizer.json"),  # not every repository has the first
        ("tokenizer.json",),
    )
    architectures = NAMES

    def check(self, name: str, spec: ModelParams) -> None:
        super().check(name, spec)
        refuse_keys(f"{name}.finetuning", spec.get("finetuning", {}), ("augmentation",), self.kind)

    def can_score(self, task: Task) -> bool:
        """Not where every example has choices of its own."""
        return bool(task.classes)

    def is_trained(self, tensor: str) -> bool:
        return tensor != TOKENIZER

    def load(
        self, spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None
    ) -> ClassifierModel:
        from reproduction.models.text_classifier import classifier_network

        return classifier_network.load(spec, weights, precision, device)

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> ClassifierExamples:
        return open_examples(path, task_files.get("head"))

    def convert_pretrained(self, spec: ModelParams, weights: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.text_classifier import classifier_files

        return classifier_files.pretrained_state(spec, weights)

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.text_classifier import classifier_files

        return classifier_files.fine_tuned_state(spec, path)
