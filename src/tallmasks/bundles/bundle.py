"""Reads bundles: loads their models, and switches a live module between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from tallmasks.bundles.bundle_parts import BundleParts, manifest_of, open_location
from tallmasks.bundles.finding_base import NoBase, check_form, check_module, find_base
from tallmasks.bundles.manifest import CARD, COMPANIONS, MANIFEST
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.errors import TallmasksError, counted, name_some, nearest, needed_for
from tallmasks.io.dtypes import DTYPES
from tallmasks.io.plain_files import read_plain_json
from tallmasks.parallel import cached
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.folders import CONFIG, TOKENIZERS, matches
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.multiples import PIECE, pieces

if TYPE_CHECKING:
    import torch

    from tallmasks.bundles.module_writing import DeviceWeights


class Bundle:
    """An open bundle. Files are read and checked when first needed; values stay memory-mapped.

    Pickling stores only the locations of bundle and base, and unpickling opens them again.

    The weights of task t are ``round(float32(theta_0) + u)`` in the base's dtype, where the update u, float32, is an
    integer times a step; with masks, it is 0 where the task's mask is 0. Weights with the integer 0 are the base's, bit
    for bit. In a lossless bundle, the integers are added to bit patterns instead. Buffers are each task's own, byte for
    byte. Unchanged tensors are the base's.
    """

    def __init__(self, parts: BundleParts, base: Checkpoint | None, device: torch.device | None = None) -> None:
        self.manifest = parts.manifest
        self.parts, self._base_spec = parts, None if base is None else _spec(base.origin)
        self._device = device
        self._find_base_once = cached(lambda: find_base(parts, base))
        self._of_module: Checkpoint | None = None  # theta_0 copied from the first module, if the base is unavailable
        self._on_device: DeviceWeights | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self.parts.location.title, self._base_spec, self._device
        return load_bundle, arguments, {"_of_module": self._of_module}

    def __repr__(self) -> str:
        tasks = f"{counted(len(self.tasks), 'task')} ({name_some(self.tasks)}) by {self.manifest.method}"
        nbytes = self.parts.cached_bytes if self._on_device is None else self._on_device.nbytes
        kept = f", {decimal(nbytes)} decoded on {self._device or 'cpu'}" if nbytes else ""
        return f"<Bundle of {tasks}, {decimal(size_of_bundle(self))}{kept}>"

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.manifest.tasks

    @property
    def base(self) -> Checkpoint:
        """theta_0 from files. Raises TallmasksError if it cannot be found or is not this bundle's base."""
        return self._find_base_once()

    def density(self, task: str) -> float:
        """The fraction of the stored values that a task's mask keeps. Raises like :meth:`update`, or without masks."""
        self.manifest.check_task(task)
        if self.manifest.updates:
            raise TallmasksError(f"A bundle made by {self.manifest.method} has no masks, so there is no mask density.")
        return self.manifest.density[task]

    def update(self, task: str, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Values start..stop of a tensor's flattened task vector as restored, float32; zeros for unchanged tensors and
        buffers. Raises TallmasksError for an unknown task or tensor, a file that does not match bundle.json, or if the
        base is missing."""
        self.manifest.check_task(task)
        name = self.manifest.aliases.get(name, name)
        if name not in self.manifest.tensors:
            raise TallmasksError(f"The bundle has no tensor {name!r}{nearest(name, self.manifest.tensors)}.")
        tensor = self.manifest.tensors[name]
        start, stop, _ = slice(start, stop).indices(tensor.size)
        if name not in self.manifest.encoded or stop <= start:
            return np.zeros(max(stop - start, 0), np.float32)
        first, last, dtype = start // PIECE, -(-stop // PIECE), tensor.dtype
        updates = [self.parts.update(task, name, number, self.base) for number in range(first, last)]
        theta = [self.base.raw_bytes(name, *piece) for piece in pieces(tensor.size)[first:last]]
        every = [update.added(of_piece, dtype) for update, of_piece in zip(updates, theta, strict=True)]
        return np.concatenate(every)[start - first * PIECE : stop - first * PIECE]

    def state_dict(self, task: str, like: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
        """A task's model, in the base's dtypes and under the names of the base's files. The task's own tensors keep
        their dtypes.

        Args:
            like: a module, possibly on the meta device. The result then fits its ``load_state_dict``: tied tensors
                appear under each of their names.

        Raises TallmasksError if a file does not match bundle.json, the base is missing, ``like`` does not fit, or torch
        is not installed.
        """
        with needed_for("state_dict (unlike arrays)"):
            from tallmasks.bundles.module_tensors import form_of, state_for, tensor_of

        weights = self.weights(task)
        tensors = {name: tensor_of(raw, weights.tensors[name]) for name, raw in weights.raw(weights.tensors).items()}
        tensors |= {alias: tensors[name] for alias, name in weights.aliases.items()}
        return tensors if like is None else state_for(like, form_of(self.manifest, task), tensors)

    def named_tensors(self, task: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the tensors of :meth:`state_dict` one at a time, sorted by name; a tied tensor under each of its
        names. Only the current tensor is held in memory. Raises like :meth:`state_dict`, before the first tensor."""
        with needed_for("named_tensors"):
            from tallmasks.bundles.module_tensors import tensor_of

        weights = self.weights(task)
        infos = weights.tensors
        names = {name: [name] for name in infos}
        for alias, name in weights.aliases.items():
            names[name].append(alias)

        def tensors() -> Iterator[tuple[str, torch.Tensor]]:
            for name, all_names in names.items():
                tensor = tensor_of(weights.raw([name])[name], infos[name])
                for each in all_names:
                    yield each, tensor
                del tensor  # before the next one is computed

        return tensors()

    def arrays(self, task: str) -> dict[str, NDArray]:
        """Like :meth:`state_dict`, as NumPy arrays. Raises TallmasksError if the base has a dtype that NumPy lacks."""
        weights = self.weights(task)
        infos = weights.tensors
        for name, info in infos.items():
            if (kind := DTYPES.get(info.dtype)) is None or kind.numpy.name != kind.torch:
                raise TallmasksError(f"Tensor {name} is {info.dtype}, which NumPy does not have; use state_dict.")
        raws = weights.raw(infos)
        arrays = {
            name: raw.view(DTYPES[infos[name].dtype].numpy).reshape(infos[name].shape) for name, raw in raws.items()
        }
        return arrays | {alias: arrays[name] for alias, name in weights.aliases.items()}

    def config(self, task: str) -> dict[str, Any]:
        """A task's config.json, with its class names: `AutoConfig.for_model(**bundle.config(task))`. Raises
        TallmasksError for an unknown task, or if the file is not there."""
        if CONFIG not in self.companion_names(task):
            raise TallmasksError(f"{self.parts.location.title}: {task} has no {CONFIG}, since the base has none")
        return read_plain_json(self.companion(task, CONFIG))

    def tokenizer_files(self, task: str) -> dict[str, Path]:
        """The files of a task's tokenizer by name; empty if it has none. Copied to one folder, they are what
        `AutoTokenizer.from_pretrained` loads. Raises TallmasksError for an unknown task, or if a file is missing or
        changed."""
        names = [name for name in self.companion_names(task) if matches(name, TOKENIZERS)]
        return {name: self.companion(task, name) for name in names}

    def companion_names(self, task: str) -> list[str]:
        """The names of the small files of a task's folder: configuration, tokenizer, license."""
        self.manifest.check_task(task)
        return list(self.manifest.model(task).companions or self.base.companions)

    def companion(self, task: str, name: str) -> Path:
        """The path of one of these files. Raises TallmasksError if it is missing or has changed."""
        sha256 = self.manifest.model(task).companions.get(name)
        if sha256 is not None and COMPANIONS + sha256 in self.manifest.files:
            return self.parts.checked(COMPANIONS + sha256)
        path = self.base.companions.get(name)
        if path is None or sha256 not in (None, sha256_of(path)):
            raise TallmasksError(
                f"{self.base.title}: {name} is missing or has changed since the bundle was made, and the task needs it."
                " Give the base's folder in the same revision, unmodified"
            )
        return path

    def apply_(
        self, module: torch.nn.Module, task: str, *, module_is_base: bool = False, keep_heads: bool = False
    ) -> tuple[str, ...]:
        """Turns a module into a task's model in place: writes its parameters and persistent buffers.

        Values are always computed from theta_0, so switching never drifts, and rounded to the base's dtype as `export`
        does; a module in another dtype gets these values converted. Nothing is reallocated; ``requires_grad`` and hooks
        stay. On failure the module is reset to theta_0. A forward pass in another thread may see weights of two tasks.

        If the base is unavailable, the module must hold the base's weights at the first call. They are checked against
        the digests in the bundle, and a copy is kept.

        Args:
            module_is_base: skip that check for tensors in another dtype, whose values cannot be compared. The copy of
                this module is the base of later calls, too.
            keep_heads: do not change the module's tensors that the task's model lacks or has in another shape.

        Returns the names of the task's own tensors that were not written; empty without ``keep_heads``.

        Raises TallmasksError, before changing anything, if names or shapes do not fit, the task is unknown, the base is
        unavailable and the module is not the base, or a file does not match bundle.json.
        """
        self.manifest.check_task(task)
        return self._switch(module, task, module_is_base, keep_heads)

    def restore_(self, module: torch.nn.Module) -> None:
        """Resets a module to theta_0, in place and exactly. Tensors that the base lacks, such as heads, do not change.
        Raises like :meth:`apply_`."""
        self._switch(module, None, module_is_base=False, keep_heads=True)

    def _switch(
        self, module: torch.nn.Module, task: str | None, module_is_base: bool, keep_heads: bool
    ) -> tuple[str, ...]:
        with needed_for("switching a module"):
            from tallmasks.bundles.module_tensors import forget_old_weights, form_of, module_tensors
            from tallmasks.bundles.module_writing import DeviceWeights, copy_of, overwrite

        tensors, left = module_tensors(module, form_of(self.manifest, task), keep_heads)
        if task is not None:
            self.parts.check(task)
        try:
            base = self._of_module or self.base
        except NoBase:
            own = self.manifest.model(task or "").own
            base = copy_of([one for one in tensors if one.name not in own])
            check_module(base, self.manifest, module_is_base)
            self._of_module = base
        weights = TaskWeights(self.parts, base, task, keep=True)
        if unknown := [one.name for one in tensors if one.name not in weights.tensors]:
            raise TallmasksError(
                f"{name_some(unknown)}: the base's values of these tensors are unknown, because the module of the first"
                " call did not have them. Pass the base: load_bundle(..., base=...)"
            )
        if self._device is not None and self._on_device is None:
            self._on_device = DeviceWeights(self.parts, base, self._device, self.manifest.encoded, keep=True)
        forget_old_weights(module)
        overwrite(tensors, weights, TaskWeights(self.parts, base, None), self._on_device)
        return left

    def weights(self, task: str) -> TaskWeights:
        """A task's model, read in pieces. Raises like :meth:`state_dict`."""
        self.manifest.check_task(task)
        self.parts.check(task)
        return TaskWeights(self.parts, self.base, task)


def _spec(origin: Mapping[str, str]) -> str:
    """The path, or repository@revision, that opens the checkpoint from any working directory."""
    return str(Path(origin["path"]).absolute()) if "path" in origin else f"{origin['repository']}@{origin['revision']}"


def load_bundle(
    path_or_repository: str | Path,
    base: str | Path | Checkpoint | None = None,
    device: str | torch.device | None = None,
) -> Bundle:
    """Opens a bundle: a folder, or `organisation/name[@revision]` on the hub, of which only the needed files are
    downloaded.

    Args:
        base: theta_0, as file, folder, repository or open checkpoint (default: the base included in the bundle, or at
            its recorded location; opened on first use).
        device: torch device, such as "cuda", on which `apply_` keeps theta_0 and the decoded updates of each task used,
            so that later switches upload nothing (default: the updates are kept in main memory); `repr` shows how many
            bytes.

    Raises TallmasksError if bundle.json is missing, damaged or of an unknown format, the base's tensors differ from the
    manifest's, or torch does not have the device.
    """
    location = open_location(path_or_repository)
    manifest = manifest_of(location)
    if isinstance(base, (str, Path)):
        base = open_checkpoint(Path(base).absolute() if Path(base).exists() else base)
    if base is not None:
        if not isinstance(base, Checkpoint):
            raise TallmasksError(
                f"base: found {type(base).__name__}, expected the path of a file or folder, or a repository"
            )
        check_form(base, manifest, base.title)
    return Bundle(BundleParts(location, manifest), base, None if device is None else _torch_device(device))


def _torch_device(device: str | torch.device) -> torch.device:
    with needed_for("device="):
        import torch

    try:
        return torch.empty(0, device=device).device  # with its index
    except (RuntimeError, AssertionError) as error:
        raise TallmasksError(f"torch has no device {str(device)!r}: {str(error).splitlines()[0]}") from None


def size_of_bundle(bundle: Bundle) -> int:
    """Bytes of all files except an included base; the model card only counts if it has been downloaded."""
    texts = [path for name in (MANIFEST, CARD) if (path := bundle.parts.location.root / name).is_file()]
    return bundle.manifest.size + sum(path.stat().st_size for path in texts)
