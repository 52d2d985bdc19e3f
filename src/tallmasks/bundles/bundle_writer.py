"""Writes bundles: in pieces, from any thread, and atomically."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import density, file_infos, metadata_of
from tallmasks.bundles.codings import Coding, Levels, pieces
from tallmasks.bundles.manifest import (
    BASE,
    BUFFER,
    CARD,
    COMPANIONS,
    FORMAT,
    MANIFEST,
    MASKS,
    MERGED,
    OWN,
    UPDATES,
    BaseOrigin,
    BundledTensor,
    Dtype,
    Manifest,
    ModelSizes,
    PartFile,
    TaskModel,
    TaskOnlyTensor,
    read_manifest,
    task_files,
)
from tallmasks.bundles.model_card import model_card
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.atomic_files import atomic_write_bytes, whole
from tallmasks.io.dtypes import DTYPES, FLOATS, OF_BUNDLES
from tallmasks.io.tensor_files import NewTensors, bytes_of_file, new_tensors, open_tensors
from tallmasks.masks.mask_bundles import MaskBundle
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.float_bytes import cast, converted, narrowed
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint
from tallmasks.vectors.levels import normal_levels, rounded_rows

_NO_SHA256 = "0" * 64  # a placeholder of the final length


@dataclass(frozen=True)
class BundleContents:
    """What goes into a bundle. Mappings are by task, except ``options`` and ``codings``.

    Attributes:
        options: any JSON values.
        base: theta_0; ``include_base`` copies its files into the bundle.
        dtype: dtype of the stored merged vector, one of `OF_BUNDLES`.
        unchanged: float tensors equal to the base's for every task; not stored.
        buffers: tensors stored per task as they are, whether floats or not.
        models: the fine-tuned models, the source of buffers, task-only tensors and companion files.
        own: tensors that the base lacks or has in another shape.
        missing: tensors of the base that the model lacks.
        sizes: bytes of the base, and of all models.
        mask_lambda: by task; tasks without a mask lambda can be left out.
        scale: factor of the update (default: 1).
        by_task: True for a bundle of compressed tensors per task, without tau_MTL; dtype, mask_lambda and scale are
            then unused.
        codings: by stored tensor; with tau_MTL, of its tensors that are not stored as values of ``dtype``.
    """

    method: str
    base: Checkpoint
    tasks: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    unchanged: Collection[str] = ()
    buffers: Collection[str] = ()
    models: Mapping[str, Checkpoint] = field(default_factory=dict)
    own: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    mask_lambda: Mapping[str, float | None] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    include_base: bool = False
    by_task: bool = False
    codings: Mapping[str, Coding] = field(default_factory=dict)


@dataclass(frozen=True)
class NewBundle:
    """A bundle of masks being written. ``mask_lambda``, ``scale`` and ``error`` (relative errors for the model card)
    can be set until the ``with`` block ends."""

    manifest: Manifest
    mask_lambda: dict[str, float | None]
    scale: dict[str, float]
    _merged: NewTensors
    _masks: Mapping[str, NewTensors]
    error: dict[str, float] = field(default_factory=dict)

    def unit(self, name: str) -> int:
        """Pieces of a tensor start at multiples of this many values."""
        return self.manifest.codings[name].unit

    def write(
        self, name: str, start: int, merged: NDArray[np.float32], masks: Mapping[str, NDArray[np.uint8]]
    ) -> NDArray[np.float32]:
        """Writes values of one flattened stored tensor from ``start`` on. Thread-safe; each value is written once.

        Pieces start at a multiple of ``unit(name)`` and end at one or at the end of the tensor.

        Args:
            merged: tau_MTL, float32 [n].
            masks: by task uint8 [ceil(n / 8)]; bit i of byte j belongs to value start + 8 j + i. Padding bits are
                cleared, and those of zeros of a tensor with a coding, whose levels may lack 0.

        Returns tau_MTL as stored, except that it is not rounded to the dtype. Raises TallmasksError, naming the tensor,
        for NaN, infinity or a value too large for the bundle's dtype.
        """
        coding, tensors = self.manifest.codings[name], self._merged.tensors
        values, used = np.ascontiguousarray(merged, np.float32), np.ones(merged.size, bool)
        title = f"tensor {name} of the merged vector"
        if isinstance(coding, Levels):
            used = values != 0
            rounded = rounded_rows(values, coding.group, normal_levels(coding.bits))
            narrowed(rounded.scales, "F32", title)
            piece = replace(coding, shape=values.shape)
            parts, first = piece.pack(rounded), start // coding.group
            tensors[name + ".index"][:, start // 8 :][:, : parts[".index"].shape[1]] = parts[".index"]
            tensors[name + ".levels"][...] = parts[".levels"]
            tensors[name + ".scale"][first : first + len(rounded.scales)] = parts[".scale"]
            values = piece.values(rounded) * used
        else:
            part = tensors[name].reshape(-1)[start : start + values.size]
            part.view(np.uint8)[...] = narrowed(values, coding.specs[""].dtype, title)
        of_masks = np.packbits(used, bitorder="little")
        for task, bits in masks.items():
            self._masks[task].tensors[name][start // 8 : -(-(start + merged.size) // 8)] = bits & of_masks
        return values


@dataclass(frozen=True)
class NewCodedBundle:
    """A bundle of compressed tensors being written; ``error`` as in `NewBundle`."""

    manifest: Manifest
    _files: Mapping[str, NewTensors]
    error: dict[str, float] = field(default_factory=dict)

    def write(self, task: str, name: str, content: Any) -> None:
        """Writes one tensor of one task. ``content``: the input of `pack` of its coding. Thread-safe; each tensor is
        written once. Raises TallmasksError, naming task and tensor, for NaN or infinity."""
        for ending, values in self.manifest.codings[name].pack(content).items():
            if values.dtype.kind == "f":
                narrowed(values, "F32", f"{task}: tensor {name}")
            self._files[task].tensors[name + ending][...] = values


@contextmanager
def new_bundle(out: Path | str, contents: BundleContents) -> Iterator[NewBundle]:
    """Creates a bundle of masks in the new folder ``out``, which appears only if the ``with`` block succeeds.

    All stored values must be written. Raises TallmasksError if ``out`` exists, the disk lacks space, two tensors would
    get the same name, or a value cannot be stored.
    """
    draft = _draft(contents)
    with whole(out, _needed(contents, draft), folder=True, new=True) as folder:
        with ExitStack() as files:
            merged = files.enter_context(new_tensors(folder / MERGED, file_infos(draft)[MERGED], metadata_of(draft)))
            masks = _new_task_files(files, folder, contents, draft)
            new = NewBundle(draft, dict(draft.mask_lambda), dict(draft.scale), merged, masks)
            yield new
        chosen = {"mask_lambda": new.mask_lambda, "scale": new.scale}
        _describe(folder, contents, draft.model_copy(update=chosen), new.error)


@contextmanager
def new_coded_bundle(out: Path | str, contents: BundleContents) -> Iterator[NewCodedBundle]:
    """Like :func:`new_bundle`, for a bundle by task."""
    draft = _draft(contents)
    with whole(out, _needed(contents, draft), folder=True, new=True) as folder:
        with ExitStack() as files:
            new = NewCodedBundle(draft, _new_task_files(files, folder, contents, draft))
            yield new
        _describe(folder, contents, draft, new.error)


def write_from_planes(out: Path, contents: BundleContents, merged: NDArray[np.float32], masks: MaskBundle) -> None:
    """Writes a bundle of tau_MTL, float32 [P'], and each task's mask at its lambda of the grid.

    Masks are repacked, because tensors start at any bit in ``masks`` and at a whole byte in the bundle. Raises
    TallmasksError like :func:`new_bundle`, or if ``masks`` lacks a task or lambda.
    """
    layout = masks.layout
    lambdas = {task: contents.mask_lambda[task] for task in contents.tasks}
    with new_bundle(out, contents) as new:

        def write(piece: tuple[str, int, int, int]) -> None:
            name, offset, start, stop = piece
            first, last = offset + start, offset + stop
            bits = {task: masks.packed_piece(task, value or 0.0, first, last) for task, value in lambdas.items()}
            new.write(name, start, merged[first:last], bits)

        tensors = zip(layout.names, layout.shapes, layout.offsets, strict=True)
        parts = [
            (name, offset, *piece)
            for name, shape, offset in tensors
            for piece in pieces(math.prod(shape), new.unit(name))
        ]
        parallel(write, parts)


def bytes_of_bundle(contents: BundleContents) -> dict[str, int]:
    """The exact size of every file except the card, by name. Raises like :func:`new_bundle`."""
    return _sizes(contents, _draft(contents))[0]


def bytes_of_card(contents: BundleContents) -> int:
    """The approximate size of README.md: errors and densities, still unknown, can change it by a few bytes."""
    zeros = dict.fromkeys(contents.tasks, 0.0)
    return len(model_card(_sizes(contents, _draft(contents))[1], zeros, zeros).encode())


def _sizes(contents: BundleContents, draft: Manifest) -> tuple[dict[str, int], Manifest]:
    sizes = {name: path.stat().st_size for name, path in _copied_files(contents).items()}
    tasks = {file: task for task, file in draft.task_files.items()}
    tasks |= {str(model.own_file): task for task, model in draft.models.items()}
    for file, infos in file_infos(draft).items():
        sizes[file] = bytes_of_file(infos, metadata_of(draft, tasks.get(file)))
    files = {name: PartFile(sha256=_NO_SHA256, bytes=size) for name, size in sizes.items()}
    described = draft.model_copy(update={"files": files})
    return {**sizes, MANIFEST: len(_json(described))}, described


def _needed(contents: BundleContents, draft: Manifest) -> int:
    """Disk space in bytes that writing the bundle needs."""
    return sum(_sizes(contents, draft)[0].values())


def _new_task_files(files: ExitStack, folder: Path, contents: BundleContents, draft: Manifest) -> dict[str, NewTensors]:
    """Opens every task's file for writing and fills in the buffers."""
    infos = file_infos(draft)
    new = {
        task: files.enter_context(new_tensors(folder / file, infos[file], metadata_of(draft, task)))
        for task, file in draft.task_files.items()
    }

    def copy(piece: tuple[str, str, int, int]) -> None:
        task, name, start, stop = piece
        is_of_base = name in contents.own.get(task, ()) or name in contents.missing.get(task, ())
        model, dtype = contents.base if is_of_base else contents.models[task], draft.tensors[name].dtype
        if name in averages and model.info(name).dtype != dtype:
            data = cast(model.piece(name, start, stop), dtype, f"{task}: tensor {name}")
        else:
            data = converted(model.stored(name, start, stop), model.info(name).dtype, dtype)
        part, width = new[task].raw[name], DTYPES[dtype].width
        part[start * width : stop * width] = data

    buffers, averages = draft.buffers.items(), {*contents.base.averages}
    parallel(copy, [(task, name, *piece) for task in new for name, one in buffers for piece in pieces(one.size)])
    return new


def _draft(contents: BundleContents) -> Manifest:
    """The manifest without file sizes, and with placeholders of the base's checksums."""
    if (dtype := contents.dtype) not in OF_BUNDLES:
        raise TallmasksError(
            f"dtype is {dtype!r}{nearest(str(dtype), OF_BUNDLES)}; expected one of {', '.join(OF_BUNDLES)}"
        )
    unchanged, buffers = set(contents.unchanged), set(contents.buffers)
    own_files = task_files([task for task in contents.tasks if contents.own.get(task)], OWN)
    files = _companions(contents)
    models = {}
    for task, model in contents.models.items():
        own = {
            name: TaskOnlyTensor(shape=model.info(name).shape, dtype=_storable(model, name))
            for name in contents.own.get(task, ())
        }
        difference = TaskModel(
            own=own,
            own_file=own_files.get(task),
            missing=tuple(contents.missing.get(task, ())),
            names={name: file for name, file in model.file_names.items() if name in own or name in contents.base.names},
            companions={name: sha256 for name, (sha256, _) in files.get(task, {}).items()},
        )
        if difference != TaskModel():
            models[task] = difference
    tensors = {
        name: BundledTensor(
            shape=tuple(tensor.shape),
            dtype=tensor.dtype,  # type: ignore[arg-type]
            stored=BUFFER if name in buffers else name not in unchanged,
            base_sha256=_NO_SHA256,
        )
        for name, tensor in sorted(contents.base.tensors.items())
        if tensor.dtype in FLOATS or name in buffers
    }
    if contents.by_task:
        kind: dict[str, Any] = {"updates": task_files(contents.tasks, UPDATES)}
    else:
        kind = {
            "dtype": contents.dtype,
            "masks": task_files(contents.tasks, MASKS),
            "mask_lambda": {task: contents.mask_lambda.get(task) for task in contents.tasks},
            "scale": {task: float(contents.scale.get(task, 1.0)) for task in contents.tasks},
        }
    draft = Manifest.model_construct(
        format=FORMAT,
        method=contents.method,
        options=dict(contents.options),
        base=BaseOrigin.model_construct(None, **contents.base.origin, included=contents.include_base or None),
        tensors=tensors,
        aliases=dict(sorted(contents.base.aliases.items())),
        tasks=tuple(contents.tasks),
        models=models,
        sizes=ModelSizes(base=contents.sizes[0], models=contents.sizes[1]) if contents.sizes else None,
        coding_texts={name: coding.text for name, coding in sorted(contents.codings.items())},
        files={},
        **kind,
    )
    file_infos(draft)  # raises if two stored tensors would get the same name
    return draft


def _storable(model: Checkpoint, name: str) -> Any:
    dtype = model.info(name).dtype
    if dtype not in get_args(Dtype):
        raise TallmasksError(f"{model.title}: tensor {name} is {dtype}; expected one of {', '.join(get_args(Dtype))}")
    return dtype


def _companions(contents: BundleContents) -> dict[str, dict[str, tuple[str, Path]]]:
    """The sha256 and path of each model's companion files, by task and name. An adapter has the base's files, unless
    its own folder has files of the same name."""
    files: dict[str, dict[str, Path]] = {}
    for task, model in contents.models.items():
        if model.is_folder and contents.base.is_folder:
            of_adapter = isinstance(model, LoraCheckpoint)
            files[task] = {**(contents.base.companions if of_adapter else {}), **model.companions}
    paths = {path for of_task in files.values() for path in of_task.values()}
    digests = dict(zip(paths, parallel(sha256_of, paths), strict=True))
    return {task: {n: (digests[path], path) for n, path in of_task.items()} for task, of_task in files.items()}


def _copied_files(contents: BundleContents) -> dict[str, Path]:
    """Files to copy, by name in the bundle: an included base, and companions without an identical file in the base."""
    base = contents.base
    included = {**base.companions, **base.indexes, **base.files} if contents.include_base else {}
    ours = {(name, sha256_of(path)) for name, path in base.companions.items()}
    every = (item for of_task in _companions(contents).values() for item in of_task.items())
    companions = {COMPANIONS + sha256: path for name, (sha256, path) in every if (name, sha256) not in ours}
    return {BASE + name: path for name, path in included.items()} | companions


def _describe(folder: Path, contents: BundleContents, draft: Manifest, errors: Mapping[str, float]) -> None:
    """Completes the folder: task-only tensors, copied files, bundle.json and README.md."""
    infos = file_infos(draft)
    for task, model in draft.models.items():
        if model.own_file is not None:
            with new_tensors(folder / model.own_file, infos[model.own_file], metadata_of(draft, task)) as new:
                for name, raw in new.raw.items():
                    raw[...] = contents.models[task].stored(name, 0, contents.models[task].info(name).size)
    copied = _copied_files(contents)
    for name, source in copied.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    parts: dict[str, PartFile] = {}

    def take(name: str) -> None:
        parts[name] = PartFile(sha256=sha256_of(folder / name), bytes=(folder / name).stat().st_size)

    parallel(take, [*infos, *copied])
    digests = dict(zip(draft.tensors, parallel(contents.base.digest, draft.tensors), strict=True))
    tensors = {name: one.model_copy(update={"base_sha256": digests[name]}) for name, one in draft.tensors.items()}
    manifest = draft.model_copy(update={"tensors": tensors, "files": dict(sorted(parts.items()))})
    content = _json(manifest)
    read_manifest(content, MANIFEST)  # never write a manifest that the reader refuses
    atomic_write_bytes(folder / MANIFEST, content)
    masks = {task: open_tensors(folder / file) for task, file in manifest.masks.items()}
    densities = {task: density(manifest, of_task.view) for task, of_task in masks.items()}
    atomic_write_bytes(folder / CARD, model_card(manifest, densities, errors).encode())


def _json(manifest: Manifest) -> bytes:
    for task, scale in manifest.scale.items():
        if not math.isfinite(scale):
            raise TallmasksError(
                f"{task}: the scale is {scale}; expected a finite number. The task vector has values too large for"
                " float32 sums: the checkpoint is damaged or its training diverged. Leave this task out."
            )
    try:
        return manifest.to_bytes()
    except (TypeError, ValueError, RecursionError) as error:
        raise TallmasksError(f"The bundle's options or mask lambdas cannot be written as JSON: {error}") from None
