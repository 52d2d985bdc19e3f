"""The interface of a model family: a package with an object `FAMILY` that implements :class:`Family`.

Only a family knows architectures, heads, images and tokenizers.  Fine-tuning and evaluation use :class:`Model`; all
other code uses flat arrays.  params.yaml names a family outside this package by its module
(`family: my_package.my_family`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from reproduction.models.checkpoint_sources import Publisher
from reproduction.plugins import load_plugin, outside_code
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.methods.merges import FISHER, GRAMS, LEARNED, Statistic

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from reproduction.models.cuda import Wanted

FAMILIES = {
    "clip": "reproduction.models.clip",
    "image_classifier": "reproduction.models.image_classifier",
    "t5": "reproduction.models.t5",
    "text_classifier": "reproduction.models.text_classifier",
}
STATISTICS = {
    GRAMS: "the model trains no linear layers, or its family does not provide their inputs (grams)",
    FISHER: "the model's family does not provide log-probabilities (fisher)",
    LEARNED: "the model's family does not provide log-probabilities of choices (learn)",
}
"""What merges need of the tasks' data, and the error if a model cannot provide it."""
Precision = Literal["float32", "tf32", "bfloat16"]
ModelParams = Mapping[str, Any]
"""A model's entry in params.yaml, or its part in a recipe."""


HEAD = "head"
"""The role of a classification head, an artifact that is needed to score a task."""


class Examples(Protocol):
    """Examples of one task, indexed by a slice or by indices int64 [n]."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: Any) -> Examples: ...


class Batch(Protocol):
    """Preprocessed examples on the network's device.

    Attributes:
        weight: The number of examples or tokens over which the loss is averaged.
    """

    @property
    def weight(self) -> float: ...

    def __len__(self) -> int: ...

    def split(self, size: int) -> Iterable[Batch]:
        """Pieces that need no more memory than `size` of the largest examples."""


class Model(Protocol):
    """A network with its trainable tensors in one flat buffer.

    Two more methods are optional.  ``count_right_of(batch, sets)`` returns `count_right` of several weight sets, each
    float32 [P'] on ``device``, as a tensor [sets].  ``further_scores(examples, batch_size)`` returns sums of additional
    scores by name, for the tables.

    Attributes:
        trainable: Names of the trainable tensors in a checkpoint, sorted.
        shapes: Their shapes, in the same order.
    """

    trainable: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    device: torch.device

    @property
    def flat(self) -> torch.Tensor:
        """float32 [P'] on ``device``, the trainable tensors concatenated.  Writing to it changes the network."""

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        """Replace the buffer ``flat``, float32 [P'] on ``device``, without a copy.  Returns the previous one."""

    def initial(self) -> torch.Tensor:
        """theta_0, the trainable tensors before fine-tuning, float32 [P'] on ``device``.  Do not write to it.

        After the first use of ``flat`` or ``parameters`` it is stored on the CPU, so on a GPU every call copies it.
        """

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters, in the order of ``trainable``."""

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the trainable tensors by name."""

    def prepare(
        self, examples: Any, changes: Mapping[str, Any] | str | None = None, generator: torch.Generator | None = None
    ) -> Batch:
        """Preprocess examples.  ``changes``: `finetuning.augmentation` of params.yaml, with random numbers from
        ``generator`` on the CPU."""

    def batches(self, examples: Any, batch_size: int) -> Iterator[Batch]:
        """Batches of about ``batch_size`` examples for an evaluation, in any order."""

    def train(self, on: bool) -> None:
        """Turn dropout on or off (initially off).  It uses torch's random generator of ``device``."""

    def loss(self, batch: Any) -> torch.Tensor:
        """The mean loss over a batch, a scalar with gradients."""

    def count_right(self, batch: Any) -> torch.Tensor:
        """The number of right answers, an int64 scalar on ``device``, or a sum of scores from 0 to 1, float64."""


class WatchedModel(Model, Protocol):
    """A model that supports `STATISTICS`."""

    def log_probabilities(self, batch: Any) -> torch.Tensor:
        """Log-probabilities of C classes or tokens, float32 [R, C], with gradients; one row per prediction."""

    def choice_log_probabilities(self, batch: Any) -> torch.Tensor:
        """Log-probabilities of each example's choices, float32 [N, C], with gradients; needed for `LEARNED`.

        Missing choices get a large negative number."""

    def watched(self, receive: Callable[[str, torch.Tensor], None]) -> AbstractContextManager[None]:
        """A context in which every forward pass calls `receive` with the name of each linear layer's weight [m, n] and
        the layer's inputs [..., n]; needed for `GRAMS`."""


class Family(Protocol):
    """A kind of network.  Import torch only inside methods that need a network.

    Five more methods are optional.  ``statistics(spec)`` returns the `STATISTICS` that the networks support, which are
    then `WatchedModel`s.  For ``counts_frozen(spec)`` see `counts_frozen`, for ``trains_heads(spec)`` `trains_heads`,
    for ``heads_from_examples(spec)`` `heads_from_examples`; families with `HEAD` are `FamilyWithHeads`.
    ``can_score(task)`` is false for tasks that the family has no answers for (default: it can score every task).

    Attributes:
        unit: The plural noun for examples, such as "images".
        task_inputs: Roles of artifacts that are needed to score a task besides its examples; CLIP has `HEAD`.
        imports: Modules that are slow to import.  One process imports them, and jobs fork from it.
        publishers: Publishers of fine-tuned checkpoints, by their names for `checkpoints` in params.yaml.
    """

    @property
    def unit(self) -> str: ...

    @property
    def task_inputs(self) -> tuple[str, ...]: ...

    @property
    def imports(self) -> tuple[str, ...]: ...

    @property
    def publishers(self) -> Mapping[str, Publisher]: ...

    def check(self, name: str, spec: ModelParams) -> None:
        """Raise TallmasksError with a one-line message if a model's entry in params.yaml is wrong."""

    def settings(self, spec: ModelParams) -> dict[str, Any]:
        """The settings besides the architecture on which scores depend; part of recipes.  ``sums_of_scores`` is true if
        `Model.count_right` can return sums of scores; ``further_scores`` lists the names of additional scores."""

    def training_settings(self, spec: ModelParams, task: Task, validates: bool) -> dict[str, Any]:
        """The settings on which a fine-tuning depends; scoring settings only if it ``validates`` while training."""

    def initial_state(self, spec: ModelParams, pretrained: Path) -> Mapping[str, NDArray[Any]]:
        """theta_0 by tensor name, float16 or float32; can be memory-mapped from the pretrained file."""

    def parameter_counts(self, spec: ModelParams, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        """P' and F of the paper's storage formula, from the shapes in a pretrained file."""

    def layer_of(self, tensor: str) -> tuple[str, str]:
        """A tensor's layer ("before", "0", "1", ..., in a decoder "d0", "d1", ..., or "after") and its kind."""

    def load(
        self, spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None
    ) -> Model:
        """Load a pretrained safetensors file.

        Args:
            precision: Of matrix products.  "bfloat16" is mixed precision with float32 weights.  "tf32" makes a GPU
                round the factors of float32 products to 10 bits, for all models in the process.
            device: None uses a GPU if one works.

        Raises TallmasksError if the file does not fit the architecture, or the requested GPU does not work.
        """

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> Examples:
        """Open a file of examples; ``task_files``: those of ``task_inputs`` by name."""

    def convert_pretrained(self, spec: ModelParams, weights: Path) -> dict[str, NDArray[Any]]:
        """Convert pretrained weights in any supported format to the tensors that `load` expects.

        Raises TallmasksError if they do not fit the architecture.
        """

    def download_pretrained(self, spec: ModelParams, pretrained: ModelParams) -> tuple[Path, dict[str, str]]:
        """Download the weights of ``pretrained`` in params.yaml; returns the file and its origin.

        Raises TallmasksError if they are unavailable; the message says what to do.
        """

    def pretrained_files(self, pretrained: ModelParams) -> tuple[tuple[str, ...], ...]:
        """The files that `download_pretrained` needs from the hub, weights first; each as a tuple of alternative names,
        of which the repository must have one."""

    def convert_checkpoint(self, spec: ModelParams, path: Path, pretrained: Path) -> dict[str, NDArray[np.float32]]:
        """The trainable tensors of an imported checkpoint, a file or a folder, under this project's names.

        Raises TallmasksError if it is damaged, or not a checkpoint of the pretrained model.
        """


class ModelWithHeads(Model, Protocol):
    """A model that computes the frozen head of a task."""

    def head(self, task: Task, examples: Any = None) -> Mapping[str, NDArray[np.float32]]:
        """The tensors of the head by name.  ``examples``: the training examples; see `heads_from_examples`.

        Raises TallmasksError if the head cannot be made from them.
        """


class FamilyWithHeads(Family, Protocol):
    """A family with `HEAD` among its ``task_inputs``; its models are `ModelWithHeads` if heads are frozen."""

    def trained_head(self, checkpoint: Path) -> Mapping[str, NDArray[np.float32]]:
        """The tensors of the head that was trained with a checkpoint, by name; see `trains_heads`."""


def family(spec: ModelParams) -> Family:
    """The family of a model's entry or recipe.  Raises TallmasksError if it does not exist."""
    return load_plugin("model family", str(spec.get("family")), FAMILIES, "FAMILY")


def network_of(spec: ModelParams) -> dict[str, Any]:
    """The network's part of a recipe: its keys of params.yaml, and the digest of a user's own family."""
    code = outside_code(spec["family"], FAMILIES)
    network = {key: spec[key] for key in ("family", "architecture", "adapter", "heads") if key in spec}
    if spec["family"] == "text_classifier":
        network["edition"] = 2  # its scores changed; versions of stages would have renamed all families' artifacts
    return network | ({"family_code": code} if code else {})


def statistics_of(spec: ModelParams) -> Collection[Statistic]:
    """The `STATISTICS` that a model supports."""
    statistics = getattr(family(spec), "statistics", None)
    return statistics(spec) if statistics else ()


def counts_frozen(spec: ModelParams) -> bool:
    """True if fractions of weights to keep, such as TIES' 20 %, also count the F frozen values (the default).

    The published code counts the whole state dict, which for an adapter contains only the adapter.
    """
    counts = getattr(family(spec), "counts_frozen", None)
    return counts is None or bool(counts(spec))


def can_score(spec: ModelParams, task: Task) -> bool:
    """Whether a model can be scored on a task; see `Family`."""
    score = getattr(family(spec), "can_score", None)
    return score is None or bool(score(task))


def trains_heads(spec: ModelParams) -> bool:
    """True if fine-tuning also trains a new head for each task, which is then stored in the task's checkpoint.

    The recipe of the fine-tuning has the task's ``classes``.
    """
    trains = getattr(family(spec), "trains_heads", None)
    return trains is not None and bool(trains(spec))


def heads_from_examples(spec: ModelParams) -> bool:
    """True if a frozen head is computed from the task's training examples, not from its prompts."""
    from_examples = getattr(family(spec), "heads_from_examples", None)
    return from_examples is not None and bool(from_examples(spec))


def refuse_keys(name: str, spec: ModelParams, keys: Iterable[str], models: str) -> None:
    """Raise TallmasksError if an entry of params.yaml has a key that its family does not use."""
    for key in keys:
        if key in spec:
            raise TallmasksError(f"params.yaml: models.{name}.{key}: {models} do not use it; remove it")


def load(spec: ModelParams, weights: Path, precision: Precision = "float32", device: Wanted | None = None) -> Model:
    """See `Family.load`."""
    return family(spec).load(spec, weights, precision, device)
