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
import transformers
from numpy.typing import NDArray
from torch.nn import functional
from transformers import AutoModel, AutoModelForImageClassification, PretrainedConfig

from reproduction.models import cuda
from reproduction.models.checkpoint_sources import refuse_adapter
from reproduction.models.classifiers import networks
from reproduction.models.classifiers.heads import CLASS_VECTORS, HEAD, head_parameters, packed
from reproduction.models.classifiers.settings import settings_of
from reproduction.models.classifiers.weights import CONFIG, check_classes, check_config
from reproduction.models.families import Precision
from reproduction.models.pretrained_files import read_pretrained
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.models.vision.image_model import ImageBatch, ImageBatches
from reproduction.tasks.task import Task
from reproduction.tasks.vision.image_processing import ImageProcessor, processor_of
from tallmasks.errors import TallmasksError, one_line

BUFFERS = "buffers."
"""Prefix of the running statistics in a pretrained file."""
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


def configuration(spec: Mapping[str, Any], classes: int | None = None) -> PretrainedConfig:
    return networks.configuration(settings_of(spec["architecture"], {}), classes)


def build(spec: Mapping[str, Any], classes: int = 2) -> Any:
    """See `networks.build`."""
    trained = AutoModelForImageClassification if networks.trains(spec) else None
    return networks.build(configuration(spec, classes), trained, pooling=True)


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> ImageClassifierModel:
    """See `Family.load`.  With trained heads and ``spec["classes"]``, the model also trains a new head."""
    tensors = read_pretrained(weights)
    buffers = {name.removeprefix(BUFFERS): tensors.pop(name) for name in list(tensors) if name.startswith(BUFFERS)}
    network, parameters = networks.loaded(spec, build, weights, tensors, precision, device, buffers)
    scale = spec.get("scoring", {}).get("cosine_scale", SCALE)
    return ImageClassifierModel(network, parameters, processor_of(spec["preprocess"]), scale, precision)


def pretrained_state(spec: Mapping[str, Any], weights: Path) -> dict[str, NDArray[Any]]:
    """The content of a pretrained file: the body's tensors and running statistics in float32.

    Tensors of heads are left out.  ``weights``: the folder, or the weights file in it.

    Raises TallmasksError if a file is damaged or missing, or does not fit the architecture.
    """
    body, _, statistics = _arrays(spec, weights if weights.is_dir() else weights.parent, any_head=True)
    return body | {f"{BUFFERS}{name}": values for name, values in statistics.items()}


def fine_tuned_state(spec: Mapping[str, Any], path: Path) -> dict[str, NDArray[Any]]:
    """The body's tensors of a fine-tuned model; if heads are trained, also its head, with its running statistics.

    Raises TallmasksError if a file is damaged or missing, its tensors do not fit the architecture, or its head does not
    fit ``spec["classes"]``.
    """
    body, head, statistics = _arrays(spec, path if path.is_dir() else path.parent, any_head=False)
    return {**body, HEAD: packed(head | statistics)} if head else body


Arrays = dict[str, NDArray[np.float32]]


def _arrays(spec: Mapping[str, Any], folder: Path, any_head: bool) -> tuple[Arrays, Arrays, Arrays]:
    """The tensors of the body and of the head, and running statistics, by the names of transformers' network, which can
    differ from those in files.  With ``any_head``, the head can be missing or another one."""
    refuse_adapter(folder)
    config = configuration(spec, len(spec.get("classes", ())) or 2)
    check_config(config, folder / CONFIG)
    if not any_head:
        check_classes(folder / CONFIG, spec.get("classes", ()))
    kind = networks.network_class(config, AutoModelForImageClassification if networks.trains(spec) else AutoModel)
    transformers.logging.set_verbosity_error()  # it reports heads that are left out
    try:
        network, report = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, local_files_only=True, trust_remote_code=False,
            ignore_mismatched_sizes=True, output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # of any kind, for a damaged file
        raise TallmasksError(f"{folder}: transformers cannot load it: {one_line(error)[:200]}") from None
    head = head_parameters(network)
    odd = {*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}
    odd |= set() if any_head or not head else {*report["unexpected_keys"]}
    if wrong := sorted(odd.difference(head if any_head else ())):
        raise TallmasksError(
            f"{folder}: tensor {wrong[0]} ({len(wrong)} in total) is missing, unknown, or of another shape; expected "
            f"the model that `architecture` in params.yaml describes{', with a head for the classes' if head else ''}"
        )
    body, buffers = dict(network.base_model.named_parameters()), dict(network.base_model.named_buffers())
    saved = network.base_model.state_dict().keys()
    statistics = {name: one for name, one in buffers.items() if one.is_floating_point() and name in saved}
    arrays: list[Arrays] = []
    for tensors in (body, head, statistics):
        arrays.append({name: tensor.detach().numpy() for name, tensor in sorted(tensors.items())})
        if bad := [name for name, array in arrays[-1].items() if not np.isfinite(array).all()]:
            raise TallmasksError(f"{folder}: tensor {bad[0]!r} contains NaN or infinity; expected finite numbers")
    return arrays[0], arrays[1], arrays[2]
