"""The contract of a model family: everything that knows an architecture lies behind :class:`Family` and :class:`Model`.

Merging, masks, consensus, selection, storage and tables see flat arrays only.  Fine-tuning and evaluation see
:class:`Model`, which takes examples and gives losses and counts of right answers: heads, images, crops and tokenizers
stay inside a family.

A family is a package with an object `FAMILY`.  One that is added is a folder and a line in `FAMILIES`; one that lies
elsewhere is named in params.yaml by its module (`family: my_package.my_family`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tallmasks.models.checkpoint_sources import Publisher
from tallmasks.tasks.catalogues import outside_code, registered
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
}
"""Stages of what is known of a task's data, and why a model has none of it."""
Precision = Literal["float32", "bfloat16"]
Spec = Mapping[str, Any]
"""A model's entry in params.yaml, or what a recipe has of it."""


class Examples(Protocol):
    """Examples of one task, of which some can be taken: by a slice, or by indices int64 [n]."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: Any) -> Examples: ...


class Batch(Protocol):
    """Examples as a network takes them, on its device.

    Attributes:
        weight: What the mean loss over the batch is a mean over (examples, or tokens), so that the losses of its
            pieces, each times its weight, sum to that of the whole.
    """

    @property
    def weight(self) -> float: ...

    def __len__(self) -> int: ...

    def split(self, size: int) -> Iterable[Batch]:
        """Pieces of at most `size` examples, in order."""


class Model(Protocol):
    """A network whose trainable tensors lie in one flat buffer.

    It may have a further method, ``count_right_of(batch, sets)``: the counts of several weight sets, each float32 [P']
    on ``device``, as a tensor [sets].  An evaluation then calls it in the place of `use` and `count_right` for one set
    after the other, for a network that can share work between them.

    And one, ``further_scores(examples, batch_size)``: sums of the examples' scores in other measures than the one that
    counts, by name, for the tables; of examples without such an empty dictionary.

    Attributes:
        trainable: Names of the trainable tensors as a checkpoint has them, sorted.
        shapes: Shape of each trainable tensor, in the order of ``trainable``.
        device: Where the network is and computes.
    """

    trainable: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    device: torch.device

    @property
    def flat(self) -> torch.Tensor:
        """float32 [P'] on ``device``, the trainable tensors one after the other. They are views into it, so writing to
        it in place changes the network."""

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        """Take the weights from another buffer, float32 [P'] on ``device``, which becomes ``flat``; copies nothing.

        Returns the buffer that was in use.
        """

    def initial(self) -> torch.Tensor:
        """The trainable tensors before fine-tuning, float32 [P'] on ``device``: theta_0, from which task vectors are
        measured.  The model's own, not to be written."""

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters in the order of ``trainable``, for an optimizer."""

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the trainable tensors by name, as a checkpoint stores them."""

    def prepare(
        self, examples: Any, changes: Mapping[str, Any] | str | None = None, generator: torch.Generator | None = None
    ) -> Batch:
        """Examples as the network takes them; for training changed at random, as ``changes`` says.

        Args:
            examples: What the family's `Family.examples` gave, or some of it.
            changes: The ``augmentation`` of a fine-tuning in params.yaml; None for none.
            generator: Where the random numbers of the changes come from; on the CPU.
        """

    def batches(self, examples: Any, batch_size: int) -> Iterator[Batch]:
        """Prepared batches for an evaluation, each example in exactly one, in the order and of the sizes that cost the
        model least; of about ``batch_size`` examples where nothing speaks for another size."""

    def train(self, on: bool) -> None:
        """Switch dropout on or off, of which a network that was loaded has none; nothing where there is no dropout.
        It draws from torch's generator of ``device``."""

    def loss(self, batch: Any) -> torch.Tensor:
        """The mean loss over a batch, with gradients; a scalar."""

    def count_right(self, batch: Any) -> torch.Tensor:
        """How many examples of a batch are answered right, int64 scalar on ``device``; where a task's score is no
        count, the sum of its examples' scores, each in 0 to 1, as a float64 scalar."""


class WatchedModel(Model, Protocol):
    """A model of a family that gives `STATISTICS`."""

    def log_probabilities(self, batch: Any) -> torch.Tensor:
        """The logarithms of what the network takes for probable, with gradients, float32 [R, C]: a row for each choice
        that it makes for a batch, of one of C classes or tokens."""

    def watched(self, told: Callable[[str, torch.Tensor], None]) -> AbstractContextManager[None]:
        """A context in which every pass tells what enters each linear layer: the name of its weight [m, n] among
        ``trainable``, and the inputs [..., n].  Only a family that gives "grams" needs it."""


class Family(Protocol):
    """What the workflow asks about a kind of network; asking imports no torch before a network is needed.

    It may have two further methods.  ``statistics(spec)``: the names of those `STATISTICS` that its networks can give,
    which are then `WatchedModel`s.  ``counts_frozen(spec)``: whether kept fractions may count frozen values, as
    `counts_frozen` says.

    Attributes:
        unit: What people call its examples, in the plural.
        task_inputs: The artifacts beside the examples that a task's scores need, stage by role: CLIP has a zero-shot
            head.
        imports: The modules that its networks need and that take long to import: jobs are forks of a Python that has
            them.
        publishers: Who publishes fine-tuned checkpoints, by the name that `checkpoints` in params.yaml has for them.
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
        """Refuse an entry of params.yaml that cannot be meant, with a TallmasksError of one line."""

    def settings(self, spec: Spec) -> dict[str, Any]:
        """What a recipe must hold, beside the architecture, of a job that counts right answers; with
        ``sums_of_scores: true`` where `Model.count_right` may give what is no count, and
        ``further_scores``, the names that ``Model.further_scores`` may give."""

    def training_settings(self, spec: Spec, task: Task, looks: bool) -> dict[str, Any]:
        """Likewise of a fine-tuning on a task, and no more than it depends on: what alone decides how answers are
        scored belongs to it only where the fine-tuning ``looks`` at validation data."""

    def initial_state(self, spec: Spec, pretrained: Path) -> Mapping[str, NDArray[Any]]:
        """What a checkpoint holds before fine-tuning, by name: theta_0, which need not be in the pretrained file.

        The arrays are float16 or float32, and may be mapped from the file.
        """

    def parameter_counts(self, spec: Spec, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        """P' and F of the paper's storage formula, from the shapes in a pretrained file."""

    def architecture_counts(self, spec: Spec) -> tuple[int, int]:
        """The same from the architecture alone: no weights are needed."""

    def place(self, tensor: str) -> tuple[str, str]:
        """The layer of a tensor ("before", "0", "1", ..., then a decoder's "d0", "d1", ..., "after") and its kind, by
        its name."""

    def load(self, spec: Spec, weights: Path, precision: Precision = "float32", device: Wanted | None = None) -> Model:
        """Build a model as params.yaml describes it and load its pretrained weights.

        Args:
            spec: The model's entry in params.yaml, or what a recipe has of it.
            weights: The pretrained safetensors file.
            precision: Of the network's products; "bfloat16" is mixed precision, with the weights in float32.
            device: "cuda" or "cpu"; a GPU if there is one, where nothing is said.

        Raises:
            TallmasksError: The file does not hold what the architecture needs, or a GPU is asked for and cannot be had.
        """

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> Examples:
        """A file of examples, with the task's artifacts by the roles of ``task_inputs``."""

    def convert_pretrained(self, spec: Spec, weights: Path) -> dict[str, NDArray[Any]]:
        """The tensors of a file of pretrained weights, in any form that the family knows, as `load` reads them.

        Raises:
            TallmasksError: The file does not hold what the architecture needs.
        """

    def download_pretrained(self, spec: Spec, pretrained: Spec) -> tuple[Path, dict[str, str]]:
        """The file that the ``pretrained`` key of params.yaml names, and where it comes from, for the provenance.

        Raises:
            TallmasksError: It cannot be had; the message says what to do.
        """

    def pretrained_files(self, pretrained: Spec) -> tuple[str, ...]:
        """The names of which the hub's repository must have one, where ``pretrained`` names no file."""

    def convert_checkpoint(self, spec: Spec, path: Path, pretrained: Path) -> dict[str, NDArray[np.float32]]:
        """The trainable tensors of a checkpoint that somebody else fine-tuned, a file or a folder, under this project's
        names.

        Raises:
            TallmasksError: The file is damaged, or no checkpoint of the pretrained model.
        """


def family(spec: Spec) -> Family:
    """The family of a model, by the ``family`` of its entry in params.yaml or of a recipe.

    Raises:
        TallmasksError: There is none of that name.
    """
    return registered("model family", str(spec.get("family")), FAMILIES, "FAMILY")


def network_of(spec: Spec) -> dict[str, Any]:
    """What recipes hold of a model's network: its keys of params.yaml, and the code of a family from outside."""
    code = outside_code(spec["family"], FAMILIES)
    found = {key: spec[key] for key in ("family", "architecture", "adapter") if key in spec}
    return found | ({"family_code": code} if code else {})


def statistics_of(spec: Spec) -> Collection[str]:
    """Those of `STATISTICS` that a model's network can give; asks the family, if it knows of them."""
    given = getattr(family(spec), "statistics", None)
    return given(spec) if given else ()


def counts_frozen(spec: Spec) -> bool:
    """Whether kept fractions, such as TIES' 20 %, may count the F frozen values of `parameter_counts` too.

    True unless the family says otherwise.  The published code counts a whole state dict: all of a model, of an adapter
    its own values.
    """
    given = getattr(family(spec), "counts_frozen", None)
    return given is None or bool(given(spec))


def load(spec: Spec, weights: Path, precision: Precision = "float32", device: Wanted | None = None) -> Model:
    """See `Family.load`."""
    return family(spec).load(spec, weights, precision, device)
