"""Image classifiers of transformers.

`heads: class_means`: the features of an image are the pooled output of the body, or the mean of its last hidden states
if it has none.  From features, their mean over the training images of the task is subtracted, and they are normalised.
A class vector is the normalised mean of the features of the class's training images.

`heads: trained`: the network is transformers' AutoModelForImageClassification.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import AutoModelForImageClassification

from reproduction.models import cuda
from reproduction.models.classifiers import networks
from reproduction.models.classifiers.heads import CLASS_VECTORS
from reproduction.models.classifiers.settings import BUFFERS, settings_of
from reproduction.models.families import Precision
from reproduction.models.pretrained_files import read_pretrained
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.models.vision.image_model import ImageBatch, ImageBatches
from reproduction.tasks.task import Task
from reproduction.tasks.vision.image_processing import ImageProcessor, processor_of
from tallmasks.errors import TallmasksError

CENTRE = "centre"
"""Name of the tensor of a head of class means with the mean feature of the training images, [D]."""
SCALE = 15.0
"""Default factor of the cosines."""
_IMAGES = 64  # of a batch whose features are computed


class ImageClassifierModel(networks.Classifier, ImageBatches):
    """Implements `reproduction.models.families.WatchedModel`.

    Args:
        network, parameters, precision: see `networks.Classifier`.
        processor: converts stored images to the network's input.
        scale: the factor of the cosines; not used for trained heads.
    """

    def __init__(
        self,
        network: Any,
        parameters: Mapping[str, torch.nn.Parameter],
        processor: ImageProcessor,
        scale: float = SCALE,
        precision: Precision = "float32",
    ) -> None:
        self._preprocess, self._scale = processor.finished, scale
        super().__init__(network, parameters, precision)

    @torch.no_grad()
    def head(self, task: Task, examples: ImageExamples) -> dict[str, NDArray[np.float32]]:
        """The frozen head of class means: the class vectors [C, D], and the mean feature [D].

        Raises TallmasksError if a class has no examples.
        """
        features = torch.cat([self._features(batch.pixels) for batch in self.batches(examples, _IMAGES)]).double()
        labels = torch.from_numpy(np.array(examples.labels)).to(self.device)
        centre = features.mean(dim=0)
        centred = functional.normalize(features - centre, dim=1)
        rows = []
        for label, name in enumerate(task.classes):
            if not (labels == label).any():
                raise TallmasksError(f"{task.name}: found no training images of the class {name}; expected some")
            rows.append(functional.normalize(centred[labels == label].mean(dim=0), dim=0))
        return {CLASS_VECTORS: torch.stack(rows).float().cpu().numpy(), CENTRE: centre.float().cpu().numpy()}

    def logits(self, batch: ImageBatch) -> torch.Tensor:
        """float32 [N, C]."""
        if CLASS_VECTORS in batch.head:
            features = functional.normalize(self._features(batch.pixels) - batch.head[CENTRE], dim=1)
            return self._scale * features @ batch.head[CLASS_VECTORS].T
        self._use_head(batch.head)
        logits: torch.Tensor = self._output(batch.pixels).logits.float()
        return logits

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        """float32 [N, D]."""
        output = self._output(pixels)
        pooled = getattr(output, "pooler_output", None)
        if pooled is not None:
            return pooled.float().flatten(1)
        states: torch.Tensor = output.last_hidden_state.float()  # [N, S, D], or [N, D, H, W] of convolutions
        return states.mean(dim=1) if states.dim() == 3 else states.flatten(2).mean(dim=2)

    def _output(self, pixels: torch.Tensor) -> Any:
        # in nested autocast contexts the cache would keep casts of the previous weight set
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed, cache_enabled=False):
            return self._network(pixel_values=pixels)


def build(spec: Mapping[str, Any], classes: int = 2) -> Any:
    """See `networks.build`."""
    trained = AutoModelForImageClassification if networks.trains(spec) else None
    config = networks.configuration(settings_of(spec["architecture"], {}), classes)
    return networks.build(config, trained, pooling=True)


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> ImageClassifierModel:
    """See `Family.load`.  With trained heads and ``spec["classes"]``, the model also trains a new head."""
    tensors = read_pretrained(weights)
    buffers = {name.removeprefix(BUFFERS): tensors.pop(name) for name in list(tensors) if name.startswith(BUFFERS)}
    network, parameters = networks.loaded(spec, build, weights, tensors, precision, device, buffers)
    scale = spec.get("scoring", {}).get("cosine_scale", SCALE)
    return ImageClassifierModel(network, parameters, processor_of(spec["preprocess"]), scale, precision)
