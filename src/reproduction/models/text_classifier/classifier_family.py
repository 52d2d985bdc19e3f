"""The model family of text classifiers; torch and transformers are imported only when needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.checkpoint_sources import Publisher, download
from reproduction.models.classifiers import settings as classifier_settings
from reproduction.models.classifiers.heads import TRAINED, unpacked_head
from reproduction.models.families import HEAD, STATISTICS, ModelParams, Precision, refuse_keys
from reproduction.models.text_classifier.classifier_architectures import NO_LINEAR_LAYERS, settings_of
from reproduction.models.text_classifier.classifier_examples import TOKENIZER, ClassifierExamples, open_examples
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.methods.merges import GRAMS, Statistic
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reproduction.models.cuda import Wanted
    from reproduction.models.text_classifier.classifier_network import ClassifierModel

HEADS = ("class_names", TRAINED)
SCORING = ("max_input_tokens", "cosine_scale")
_FILES = (
    ("model.safetensors", "pytorch_model.bin"),
    ("config.json",),
    ("tokenizer_config.json", "tokenizer.json"),  # not every repository has the first
    ("tokenizer.json",),
)


class TextClassifier:
    """Encoders and decoders of transformers with a head for each task, made from class names or trained."""

    unit = "texts"
    imports = (
        *("torch", "torch._dynamo", "transformers.models.auto.modeling_auto"),
        "transformers.models.auto.tokenization_auto",
    )
    task_inputs = (HEAD,)
    publishers = {  # noqa: RUF012
        "fusionbench": Publisher(  # Tang et al. 2024
            models={"gpt2": "gpt2"},
            tasks={name: name for name in ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2")},
            repository=lambda model, task: f"tanganke/{model}_{task}",
            file=lambda model, task: "model.safetensors",
        )
    }

    def check(self, name: str, spec: ModelParams) -> None:
        refuse_keys(name, spec, ("adapter", "preprocess", "templates"), "text classifiers")
        if spec.get("heads") not in HEADS:
            raise TallmasksError(
                f"params.yaml: models.{name}.heads: found {spec.get('heads')!r}, expected one of {', '.join(HEADS)}"
            )
        refuse_keys(f"{name}.finetuning", spec.get("finetuning", {}), ("augmentation",), "text classifiers")
        refuse_keys(f"{name}.scoring", spec.get("scoring", {}), set(spec.get("scoring", {})) - {*SCORING}, "they")
        refuse_keys(f"{name}.architecture", settings_of(spec["architecture"]), ("num_labels",), "text classifiers")

    def statistics(self, spec: ModelParams) -> tuple[Statistic, ...]:
        linear = settings_of(spec["architecture"])["model_type"] not in NO_LINEAR_LAYERS
        return tuple(needed for needed in STATISTICS if needed is not GRAMS or linear)

    def can_score(self, task: Task) -> bool:
        """Not where every example has choices of its own."""
        return bool(task.classes)

    def trains_heads(self, spec: ModelParams) -> bool:
        return spec["heads"] == TRAINED

    def trained_head(self, checkpoint: Path) -> dict[str, NDArray[np.float32]]:
        """The tensors of the head that was trained with a checkpoint, by transformers' names."""
        return unpacked_head(checkpoint)

    def settings(self, spec: ModelParams) -> dict[str, Any]:
        return {"scoring": dict(spec["scoring"])} if "scoring" in spec else {}

    def training_settings(self, spec: ModelParams, task: Task, validates: bool) -> dict[str, Any]:
        return self.settings(spec)

    def initial_state(self, spec: ModelParams, pretrained: Path) -> dict[str, NDArray[Any]]:
        checkpoint = open_checkpoint(pretrained)
        return {name: checkpoint.float32(name) for name in checkpoint.names if name != TOKENIZER}

    def parameter_counts(self, spec: ModelParams, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return sum(math.prod(shape) for name, shape in shapes.items() if name != TOKENIZER), 0

    def layer_of(self, tensor: str) -> tuple[str, str]:
        return classifier_settings.layer_of(tensor)

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

    def download_pretrained(self, spec: ModelParams, pretrained: ModelParams) -> tuple[Path, dict[str, str]]:
        return download(pretrained, self.pretrained_files(pretrained))

    def pretrained_files(self, pretrained: ModelParams) -> tuple[tuple[str, ...], ...]:
        weights, *others = _FILES
        return (pretrained["file"],) if "file" in pretrained else weights, *others

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[Any]]:
        from reproduction.models.text_classifier import classifier_files

        return classifier_files.fine_tuned_state(spec, path)
