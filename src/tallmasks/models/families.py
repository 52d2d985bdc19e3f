"""The contract of a model family: only :class:`Family` and :class:`Model` know an architecture.

Merging, masks, consensus, selection, storage and tables see flat arrays.  Fine-tuning and evaluation see
:class:`Model`, which takes examples and gives losses and counts of right answers.  Heads, images, crops and tokenizers
stay inside a family.

A family is a package with an object `FAMILY`.  A new one is a folder and a line in `FAMILIES`; params.yaml names one
from outside by its module (`family: my_package.my_family`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tallmasks.models.checkpoint_sources import Publisher
from tallmasks.plugins import load_plugin, outside_code
from tallmasks.tasks.task import Task

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from tallmasks.models.cuda import Wanted

FAMILIES = {"clip": "tallmasks.models.clip", "t5": "tallmasks.models.t5"}
STATISTICS = {
    "grams": "no inputs of linear layers are known of it (stage grams), since none is trained or its family tells none",
    "fisher": "no log-probabilities are known of it (stage fisher), since its family gives none",
    "learn": "no log-probabilities of choices are known of it (stage learn), since its family gives none",
}
"""Stages of what merges have to know of data, and why a model has none."""
Precision = Literal["float32", "tf32", "bfloat16"]
Spec = Mapping[str, Any]
"""A model's entry in params.yaml, or its part in a recipe."""


class Examples(Protocol):
    """Examples of one task; some are taken by a slice, or by indices int64 [n]."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: Any) -> Examples: ...


class Batch(Protocol):
    """Examples as a network takes them, on its device.

    Attributes:
        weight: The number of examples, or tokens, that the mean loss is over.
    """

    @property
    def weight(self) -> float: ...

    def __len__(self) -> int: ...

    def split(self, size: int) -> Iterable[Batch]:
        """Pieces that each take no more memory than `size` of the largest examples; the batch itself if it does."""


class Model(Protocol):
    """A network whose trainable tensors lie in one flat buffer.

    It may have two further methods.  ``count_right_of(batch, sets)``: the counts of several weight sets, each float32
    [P'] on ``device``, as a tensor [sets], where they can share work.  ``further_scores(examples, batch_size)``: sums
    of the examples' scores in other measures, by name, for the tables; may be empty.

    Attributes:
        trainable: Names of the trainable tensors in a checkpoint, sorted.
        shapes: Shape of each trainable tensor, in the order of ``trainable``.
        device: The network's device.
    """

    trainable: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    device: torch.device

    @property
    def flat(self) -> torch.Tensor:
        """float32 [P'] on ``device``, the trainable tensors one after the other.  Writing to it changes the network."""

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        """Make another buffer ``flat``, float32 [P'] on ``device``, without a copy.  Returns the former one."""

    def initial(self) -> torch.Tensor:
        """theta_0: the trainable tensors before fine-tuning, float32 [P'] on ``device``.  Do not write to it.

        On a GPU it is a copy once ``flat`` or ``parameters`` was asked for: the model's own is on the CPU then.
        """

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters in the order of ``trainable``, for an optimizer."""

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the trainable tensors by name, as in a checkpoint."""

    def prepare(
        self, examples: Any, changes: Mapping[str, Any] | str | None = None, generator: torch.Generator | None = None
    ) -> Batch:
        """Examples as the network takes them, for training with random changes: the ``augmentation`` of a fine-tuning
        in params.yaml, drawn from ``generator``, on the CPU."""

    def batches(self, examples: Any, batch_size: int) -> Iterator[Batch]:
        """Prepared batches for an evaluation, each example in exactly one, of about ``batch_size`` examples.  The model
        chooses order and sizes by their cost."""

    def train(self, on: bool) -> None:
        """Switch dropout on or off; it is off after loading.  It draws from torch's generator of ``device``."""

    def loss(self, batch: Any) -> torch.Tensor:
        """The mean loss over a batch, with gradients; a scalar."""

    def count_right(self, batch: Any) -> torch.Tensor:
        """The number of right answers, int64 scalar on ``device``; or the sum of scores in 0 to 1, float64 scalar."""


class WatchedModel(Model, Protocol):
    """A model of a family that gives `STATISTICS`."""

    def log_probabilities(self, batch: Any) -> torch.Tensor:
        """Log-probabilities with gradients, float32 [R, C]: a row for each choice among C classes or tokens."""

    def choice_log_probabilities(self, batch: Any) -> torch.Tensor:
        """Log-probabilities of each example's choices, with gradients, float32 [N, C]; never of the right one alone.

        A missing choice has a large negative number.  Only "learn" needs it."""

    def watched(self, receive: Callable[[str, torch.Tensor], None]) -> AbstractContextManager[None]:
        """A context in which every pass calls `receive` for each linear layer.  Arguments are the name of its weight
        [m, n] among ``trainable`` and its inputs [..., n].  Only "grams" needs it."""


class Family(Protocol):
    """A kind of network.  torch is imported only when a network is needed.

    It may have three further methods.  ``statistics(spec)``: the `STATISTICS` that its networks, as `WatchedModel`s,
    can give.  ``counts_frozen(spec)``: see `counts_frozen`.  ``trial(spec, precision, device, count)``: a `Model` with
    random weights and ``count`` random `Examples` of the real shapes, which `tallmasks doctor` times.

    Attributes:
        unit: What people call its examples, in the plural.
        task_inputs: Further artifacts that a task's scores need, stage by role: CLIP has a zero-shot head.
        imports: Modules that take long to import; jobs are forks of a Python that has imported them.
        publishers: Of fine-tuned checkpoints, by their name under `checkpoints` in params.yaml.
    """

    @property
    def unit(self) -> str: ...

    @property
    def task_inputs(self) -> Mapping[str, str]: ...

    @property
    def imports(self) -> tuple[str, ...]: ...

    @property
    def publishers(self) -> Mapping[str, Publisher]: ...

    def check(self, name: str, spec: Spec) -> None:
        """Refuse a wrong entry of params.yaml with a TallmasksError of one line."""

    def settings(self, spec: Spec) -> dict[str, Any]:
        """Beside the architecture, the part of a recipe that right answers depend on.  ``sums_of_scores`` is true where
        `Model.count_right` may give sums of scores; ``further_scores`` lists the names of such."""

    def training_settings(self, spec: Spec, task: Task, looks: bool) -> dict[str, Any]:
        """The same for a fine-tuning on a task.  It depends on the scoring of answers only where it ``looks`` at
        validation data."""

    def initial_state(self, spec: Spec, pretrained: Path) -> Mapping[str, NDArray[Any]]:
        """theta_0 by name, float16 or float32; may be mapped from the pretrained file, or not be in it."""

    def parameter_counts(self, spec: Spec, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        """P' and F of the paper's storage formula, from the shapes in a pretrained file."""

    def architecture_counts(self, spec: Spec) -> tuple[int, int]:
        """The same from the architecture alone."""

    def layer_of(self, tensor: str) -> tuple[str, str]:
        """The layer of a tensor ("before", "0", "1", ..., then a decoder's "d0", "d1", ..., "after") and its kind."""

    def load(self, spec: Spec, weights: Path, precision: Precision = "float32", device: Wanted | None = None) -> Model:
        """The model with the weights of a pretrained safetensors file; on a GPU if there is one and no device is named.

        The precision is that of the network's products; "bfloat16" is mixed precision, with the weights in float32.
        "tf32" has a GPU round the factors of float32 products to 10 bits, for all models of the process.

        Raises TallmasksError where the file does not fit the architecture, or there is no GPU to compute on.
        """

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> Examples:
        """A file of examples, with the task's artifacts by the roles of ``task_inputs``."""

    def convert_pretrained(self, spec: Spec, weights: Path) -> dict[str, NDArray[Any]]:
        """The tensors of a file of pretrained weights of any format that the family reads, as `load` takes them.

        Raises TallmasksError where the file does not fit the architecture.
        """

    def download_pretrained(self, spec: Spec, pretrained: Spec) -> tuple[Path, dict[str, str]]:
        """The file that the ``pretrained`` key of params.yaml names, and its origin.

        Raises TallmasksError where it cannot be had; the message says what to do.
        """

    def pretrained_files(self, pretrained: Spec) -> tuple[tuple[str, ...], ...]:
        """The files that `download_pretrained` takes from the hub: the weights, then what else there must be.

        Each is a group of names, the first of which counts that the repository has."""

    def convert_checkpoint(self, spec: Spec, path: Path, pretrained: Path) -> dict[str, NDArray[np.float32]]:
        """The trainable tensors of somebody else's checkpoint, a file or a folder, under this project's names.

        Raises TallmasksError where the file is damaged, or no checkpoint of the pretrained model.
        """


def family(spec: Spec) -> Family:
    """The family of a model, by the ``family`` of its entry in params.yaml or of a recipe.

    Raises TallmasksError where there is none of that name.
    """
    return load_plugin("model family", str(spec.get("family")), FAMILIES, "FAMILY")


def network_of(spec: Spec) -> dict[str, Any]:
    """The network in recipes: the model's keys of params.yaml, and the code of a family from outside."""
    code = outside_code(spec["family"], FAMILIES)
    network = {key: spec[key] for key in ("family", "architecture", "adapter") if key in spec}
    return network | ({"family_code": code} if code else {})


def statistics_of(spec: Spec) -> Collection[str]:
    """The `STATISTICS` that a model's network can give."""
    statistics = getattr(family(spec), "statistics", None)
    return statistics(spec) if statistics else ()


def counts_frozen(spec: Spec) -> bool:
    """Whether kept fractions, such as TIES' 20 %, may count the F frozen values too; True unless the family denies it.

    The published code counts a whole state dict: all of a model, but only the adapter's own values.
    """
    counts = getattr(family(spec), "counts_frozen", None)
    return counts is None or bool(counts(spec))


def load(spec: Spec, weights: Path, precision: Precision = "float32", device: Wanted | None = None) -> Model:
    """See `Family.load`."""
    return family(spec).load(spec, weights, precision, device)
