"""The networks of classifiers: transformers' models, each with a body, which is merged, and a head for each task.

If heads are trained, the network is transformers' AutoModelFor...Classification: its base model is the body, and all
other parameters are the head, which is trained together with the body.  Otherwise the network is transformers'
AutoModel, and a frozen head has one vector per class; logits are cosines of the features and these vectors, times a
scale.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import AutoConfig, AutoModel, PretrainedConfig

from reproduction.models import cuda
from reproduction.models.classifiers.heads import HEAD, TRAINED, head_parameters, packed, start_head
from reproduction.models.families import Precision
from reproduction.models.flat_weights import FlatWeights, count_right
from reproduction.models.pretrained_files import ZeroInitialised, check_tensors
from tallmasks.errors import TallmasksError

Head = Mapping[str, NDArray[np.float32]]
"""The tensors of a head by name."""


class Classifier(FlatWeights):
    """What `WatchedModel`s of all classifiers share.  A derived class has ``logits(batch)``, float32 [N, C], whose
    batches have the labels ``right``, int64 [N].

    Args:
        network: AutoModel, or AutoModelFor...Classification for trained heads; with its weights, on its device.
        parameters: the trained ones, see `FlatWeights`.
    """

    def __init__(
        self, network: Any, parameters: Mapping[str, torch.nn.Parameter], precision: Precision = "float32"
    ) -> None:
        self._network = network.eval().requires_grad_(False)
        self._mixed = precision == "bfloat16"
        self._head_parameters, self._body = head_parameters(network), network.base_model
        self._head: tuple[Head, dict[str, torch.Tensor]] | None = None
        super().__init__(parameters)

    def logits(self, batch: Any) -> torch.Tensor:
        raise NotImplementedError

    def _on_device(self, head: Head) -> dict[str, torch.Tensor]:
        """The head on ``device``; cached, so that a task's head is uploaded once."""
        if self._head is None or self._head[0] is not head:
            self._head = head, {name: torch.from_numpy(array).to(self.device) for name, array in head.items()}
        return self._head[1]

    def _use_head(self, head: Mapping[str, torch.Tensor]) -> None:
        """Write a trained head, and running statistics that are stored with it, into the network."""
        for name, tensor in head.items():
            target = self._head_parameters[name] if name in self._head_parameters else self._body.get_buffer(name)
            target.data = tensor

    def named_arrays(self) -> dict[str, NDArray[Any]]:
        """The body's tensors, and the head in one tensor if it is trained; see `heads.HEAD`."""
        arrays = super().named_arrays()
        head = {name: arrays.pop(name) for name in self._head_parameters if name in arrays}
        return {**arrays, HEAD: packed(head)} if head else arrays

    def train(self, on: bool) -> None:
        """Turn dropout on or off.  Running statistics stay as they are."""
        self._network.train(on)
        for module in self._network.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.eval()

    def loss(self, batch: Any) -> torch.Tensor:
        return functional.cross_entropy(self.logits(batch), batch.right)

    def count_right(self, batch: Any) -> torch.Tensor:
        return count_right(self.logits(batch), batch.right)

    def log_probabilities(self, batch: Any) -> torch.Tensor:
        return functional.log_softmax(self.logits(batch), dim=1)

    def choice_log_probabilities(self, batch: Any) -> torch.Tensor:
        return self.log_probabilities(batch)


def configuration(settings: Mapping[str, Any], classes: int | None = None) -> PretrainedConfig:
    """transformers' configuration of a model.

    Raises TallmasksError if transformers does not know the model type or refuses a setting.
    """
    labels: dict[str, Any] = {} if classes is None else {"num_labels": classes}
    try:
        return AutoConfig.for_model(**settings, **labels)
    except Exception as error:  # ValueError, or an error of the model's own validation
        raise TallmasksError(
            f"params.yaml: architecture: transformers cannot use it: {' '.join(str(error).split())[:200]}"
        ) from None


def build(config: PretrainedConfig, trained: Any = None, pooling: bool = False) -> Any:
    """transformers' network with weights that are not drawn, on the default device.

    Args:
        trained: the class for trained heads, such as AutoModelForImageClassification; None for frozen heads.
        pooling: whether a network for frozen heads has a pooling layer, which they do not use.

    Raises TallmasksError if transformers has no such network.
    """
    of_type, options = network_class(config, trained or AutoModel), {}
    if not trained and "add_pooling_layer" in inspect.signature(of_type).parameters:
        options["add_pooling_layer"] = pooling
    with ZeroInitialised():
        return of_type._from_config(config, dtype=torch.float32, **options)


def loaded(
    spec: Mapping[str, Any],
    build: Callable[[Mapping[str, Any], int], Any],
    weights: Path,
    tensors: Mapping[str, torch.Tensor],
    precision: Precision,
    device: cuda.Wanted | None,
    buffers: Mapping[str, torch.Tensor] = {},
) -> tuple[Any, dict[str, torch.nn.Parameter]]:
    """A network with its weights, on its device, and the trained parameters by name: the body's and, for trained heads
    with ``spec["classes"]``, a new head's.

    ``tensors``, ``buffers``: of the body, by name; ``weights``: their file, for messages.  Raises like `check_tensors`.
    """
    chosen, classes = cuda.choose(device), spec.get("classes") if trains(spec) else None
    network = build(spec, 2 if classes is None else len(classes))
    parameters = dict(network.base_model.named_parameters())
    check_tensors(weights, {name: tuple(one.shape) for name, one in parameters.items()}, tensors)
    for name, parameter in parameters.items():
        parameter.data = tensors[name].float()
    for name, tensor in buffers.items():
        network.base_model.get_buffer(name).data = tensor.float()
    if classes is not None:
        start_head(network, f"{spec['seed']} {spec['task']} head")
    network.to(chosen)
    if chosen.type == "cuda":
        cuda.make_repeatable(tf32=precision == "tf32")
    return network, parameters if classes is None else parameters | head_parameters(network)


def network_class(config: PretrainedConfig, kind: Any) -> Any:
    """The class of a model type among those of an auto class.  Raises TallmasksError if transformers has none."""
    mapping = kind._model_mapping
    if type(config) not in mapping:
        raise TallmasksError(
            f"params.yaml: architecture.model_type: transformers has no {kind.__name__} for {config.model_type!r}"
        )
    of_type = mapping[type(config)]
    return of_type[0] if isinstance(of_type, tuple) else of_type


def trains(spec: Mapping[str, Any]) -> bool:
    """Whether the heads of a model's entry or recipe are trained."""
    return spec.get("heads") == TRAINED
