"""Reading a bundle: any of its models by one call, and a live module switched from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from tallmasks.bundles.bundle_parts import BundleParts, bytes_on_device, density, manifest_of, open_location
from tallmasks.bundles.manifest import CARD, MANIFEST
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.bundles.theta_0 import NoBase, check_form, check_module, find_base
from tallmasks.errors import TallmasksError, nearest, needed_for
from tallmasks.io.dtypes import DTYPES
from tallmasks.io.tensor_files import name_some
from tallmasks.parallel import once
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    import torch

    from tallmasks.bundles.device_weights import DeviceWeights


class Bundle:
    """An open bundle. Its files are read, and checked, when they are first needed; values stay memory-mapped.

    A bundle can be pickled: a worker opens the same folder and the same base again.

    The weights of task t are ``round(float32(theta_0) + u)`` in the base's dtype.  The update u is ``scale_t * tau``
    where the task's mask has a 1, and +0.0 elsewhere.  It is in float32, with tau as it is stored; or, without a tau,
    what the codings say of the task's own tensors.  Buffers, which are no weights, are each task's own, byte for byte.
    Tensors that no model changed are the base's.
    """

    def __init__(self, parts: BundleParts, base: Checkpoint | None, device: torch.device | None = None) -> None:
        self.manifest = parts.manifest
        self.parts, self._base_spec = parts, None if base is None else _spec(base.origin)
        self._device = device
        self._find_base_once = once(lambda: find_base(parts, base))
        self._of_module: Checkpoint | None = None
        """theta_0 as the first module had it, where no file has it; compared with the digests."""
        self._kept: DeviceWeights | None = None
        """What is kept on the device, where one was named."""

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self.parts.location.title, self._base_spec, self._device
        return load_bundle, arguments, {"_of_module": self._of_module}

    def __repr__(self) -> str:
        of = f"{len(self.tasks)} tasks ({name_some(self.tasks)}) by {self.manifest.method}"
        kept = ""
        if self._device is not None:
            shared, each = map(decimal, bytes_on_device(self.manifest))
            kept = f", keeps {shared} on {self._device} and up to {each} for each task used"
        return f"<Bundle of {of}, {decimal(size_of_bundle(self))}{kept}>"

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in order."""
        return self.manifest.tasks

    @property
    def base(self) -> Checkpoint:
        """theta_0 from files. Raises TallmasksError where it is not to be had, or is another than the bundle's."""
        return self._find_base_once()

    def density(self, task: str) -> float:
        """The fraction of the stored values that a task's mask holds. Raises as :meth:`update`."""
        if self.manifest.codings:
            raise TallmasksError(f"A bundle of {self.manifest.method} has no masks, and so no density of one.")
        return density(self.manifest, self.parts.of_task(task).__getitem__)

    def update(self, task: str, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Values start..stop of a flattened tensor's update, float32; zeros where none is stored, as of buffers.

        Raises TallmasksError for a task or tensor that the bundle lacks, and for a file that is not the bundle's.
        """
        self.manifest.check_task(task)
        name = self.manifest.aliases.get(name, name)
        if name not in self.manifest.tensors:
            raise TallmasksError(f"The bundle has no tensor {name!r}{nearest(name, self.manifest.tensors)}.")
        tensor = self.manifest.tensors[name]
        start, stop, _ = slice(start, stop).indices(tensor.size)
        if name not in self.manifest.stored or stop <= start:
            return np.zeros(max(stop - start, 0), np.float32)
        return self.parts.update(task, name, start, stop)

    def state_dict(self, task: str, like: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
        """A task's model: every tensor in the base's dtype, under the names of the base's files; the task's own tensors
        as the task has them.

        like: a module, on the meta device too, for whose ``load_state_dict`` the names are, all of them: a tied tensor
        has one name in most files, and two in the module.

        Raises TallmasksError where a file is not the bundle's, or the base is missing.  Also for a `like` that does not
        fit, and an installation without torch.
        """
        with needed_for("state_dict (arrays does not)"):
            from tallmasks.bundles.live_modules import form_of, state_for, tensor_of

        weights = self.weights(task)
        tensors = {name: tensor_of(raw, weights.tensors[name]) for name, raw in weights.raw(weights.tensors).items()}
        tensors |= {alias: tensors[name] for alias, name in weights.aliases.items()}
        return tensors if like is None else state_for(like, form_of(self.manifest, task), tensors)

    def named_tensors(self, task: str) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of :meth:`state_dict`, one at a time, sorted by name; a tied tensor under each of its names.

        Memory holds one tensor, and those that the caller keeps.  Raises as :meth:`state_dict`, before the first.
        """
        with needed_for("named_tensors"):
            from tallmasks.bundles.live_modules import tensor_of

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
        """As :meth:`state_dict`, as NumPy arrays. Raises TallmasksError where the base has a dtype that NumPy lacks."""
        weights = self.weights(task)
        infos = weights.tensors
        for name, info in infos.items():
            if (kind := DTYPES.get(info.dtype)) is None or kind.numpy.name != kind.torch:
                raise TallmasksError(f"The model's tensor {name} is {info.dtype}, which NumPy lacks; use state_dict.")
        raws = weights.raw(infos)
        arrays = {
            name: raw.view(DTYPES[infos[name].dtype].numpy).reshape(infos[name].shape) for name, raw in raws.items()
        }
        return arrays | {alias: arrays[name] for alias, name in weights.aliases.items()}

    def apply_(
        self, module: torch.nn.Module, task: str, *, module_is_base: bool = False, keep_heads: bool = False
    ) -> tuple[str, ...]:
        """Make a module the model of a task, in place: its parameters and persistent buffers.

        Every value is computed from theta_0, whatever the module holds, and rounded to the base's dtype, as `export`
        writes it; a module in another dtype gets these values converted.  So going from task to task never drifts.
        Nothing is reallocated; ``requires_grad`` and hooks stay. Where anything fails on the way, the module is left as
        theta_0.  A forward in another thread may see the weights of two tasks.

        Without a base (none given, included or to be had from where it was), the module at the first call must hold
        the base's weights.  They are compared with the digests in the bundle, which keeps a copy of the module.

        Args:
            module_is_base: believe that a module holds the base's weights where that cannot be compared, because its
                dtype is another than the base's.
            keep_heads: write what the module has a place for, and leave alone the tensors of the module that the task's
                model lacks or has in another shape.

        Returns the names of the task's own tensors that were not written; none without ``keep_heads``.

        Raises TallmasksError, before anything is changed, where the module's names or shapes do not fit.  Also for a
        module that is not the base where one is needed, a task that the bundle lacks and a file that is not its own.
        """
        self.manifest.check_task(task)
        return self._switch(module, task, module_is_base, keep_heads)

    def restore_(self, module: torch.nn.Module) -> None:
        """Make a module theta_0 again, in place and exactly; what the base lacks, such as heads, stays as it is.

        Raises as :meth:`apply_`.
        """
        self._switch(module, None, False, True)

    def _switch(
        self, module: torch.nn.Module, task: str | None, module_is_base: bool, keep_heads: bool
    ) -> tuple[str, ...]:
        with needed_for("switching a module"):
            from tallmasks.bundles.device_weights import DeviceWeights
            from tallmasks.bundles.live_modules import form_of, module_tensors
            from tallmasks.bundles.live_weights import copy_of, overwrite

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
        weights = TaskWeights(self.parts, base, task)
        if unknown := [one.name for one in tensors if one.name not in weights.tensors]:
            raise TallmasksError(
                f"{name_some(unknown)}: the first module did not have these tensors of the base, and its files are not"
                " here. Give them: load_bundle(..., base=...)"
            )
        if self._device is not None and self._kept is None:
            self._kept = DeviceWeights(self.parts, base, self._device, self.manifest.stored, keep=True)
        overwrite(tensors, weights, TaskWeights(self.parts, base, None), self._kept)
        return left

    def weights(self, task: str) -> TaskWeights:
        """A task's model, piece by piece.  Raises as :meth:`state_dict`."""
        self.manifest.check_task(task)
        self.parts.check(task)
        return TaskWeights(self.parts, self.base, task)


def _spec(origin: Mapping[str, str]) -> str:
    """What opens a checkpoint again, from any folder."""
    return str(Path(origin["path"]).absolute()) if "path" in origin else f"{origin['repository']}@{origin['revision']}"


def load_bundle(
    path_or_repository: str | Path,
    base: str | Path | Checkpoint | None = None,
    device: str | torch.device | None = None,
) -> Bundle:
    """Open a bundle: a folder, or `organisation/name[@revision]` on the hub, of which only what is used is downloaded.

    Args:
        base: where theta_0 is (a file, folder or repository), or an open one; by default the one included in the
            bundle, or the recorded one, which is looked for when it is needed.
        device: a device of torch, such as "cuda", on which `apply_` keeps theta_0, the multi-task vector and the packed
            masks of each task that it has used, so that the next switch copies nothing to it; `repr` says how many
            bytes.  By default a module on a GPU gets its weights by way of pinned memory, and nothing stays there.

    Raises TallmasksError where bundle.json is missing, damaged or says anything beyond the format.  Also for a base
    with other tensors than the bundle names, and a device that torch does not have.
    """
    location = open_location(path_or_repository)
    manifest = manifest_of(location)
    title = str(base) if isinstance(base, (str, Path)) else "the base given"
    if isinstance(base, (str, Path)):
        base = open_checkpoint(Path(base).absolute() if Path(base).exists() else base)
    if base is not None:
        check_form(base, manifest, title)
    return Bundle(BundleParts(location, manifest), base, None if device is None else _torch_device(device))


def _torch_device(device: str | torch.device) -> torch.device:
    with needed_for("device="):
        import torch

    try:
        return torch.empty(0, device=device).device  # with its number
    except (RuntimeError, AssertionError) as error:
        raise TallmasksError(f"torch has no device {str(device)!r}: {str(error).splitlines()[0]}") from None


def size_of_bundle(bundle: Bundle) -> int:
    """Bytes of all files but an included base's: with bundle.json, and the card where it is on this machine."""
    of_text = [path for name in (MANIFEST, CARD) if (path := bundle.parts.location.root / name).is_file()]
    return bundle.manifest.size + sum(path.stat().st_size for path in of_text)
