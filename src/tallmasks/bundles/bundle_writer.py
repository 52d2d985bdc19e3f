"""Writes bundles, in pieces and atomically."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tallmasks.bundles.bundle_parts import Infos, has_steps, metadata_of, other_infos
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
    OriginalFile,
    PartFile,
    TaskModel,
    TaskOnlyTensor,
    read_manifest,
    task_files,
)
from tallmasks.bundles.model_card import model_card
from tallmasks.bundles.streams import Coded, NewStreams, bytes_without_pieces, new_streams
from tallmasks.bundles.updates import Coding
from tallmasks.errors import TallmasksError
from tallmasks.io.atomic_files import atomic_path, atomic_write_bytes
from tallmasks.io.dtypes import FLOATS, nbytes_of
from tallmasks.io.tensor_files import bytes_of_file, new_tensors
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.float_bytes import cast, converted
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint
from tallmasks.vectors.multiples import pieces

_NO_SHA256 = "0" * 64  # a placeholder of the final length


@dataclass(frozen=True)
class BundleContents:
    """What goes into a bundle. Mappings are by task, except ``options``.

    Attributes:
        options: any JSON values.
        base: theta_0; ``include_base`` copies its files into the bundle.
        coding: of the tasks' updates; None for a bundle of masks.
        row_step: of multiples (see `Manifest`).
        unchanged: float tensors equal to the base's for every task; not stored.
        buffers: tensors stored per task as they are, whether floats or not.
        models: the fine-tuned models, the source of buffers, task-only tensors and companion files.
        own: tensors that the base lacks or has in another shape.
        missing: tensors of the base that the model lacks.
        originals: the models' weight files by name, if they are to come back byte for byte.
        headers: those of `originals`, by sha256; not by task.
        sizes: bytes of the base, and of all models.
    """

    method: str
    base: Checkpoint
    tasks: Sequence[str]
    coding: Coding | None = None
    row_step: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    unchanged: Collection[str] = ()
    buffers: Collection[str] = ()
    models: Mapping[str, Checkpoint] = field(default_factory=dict)
    own: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    originals: Mapping[str, Mapping[str, OriginalFile]] = field(default_factory=dict)
    headers: Mapping[str, bytes] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    include_base: bool = False


@dataclass(frozen=True)
class NewBundle:
    """A bundle being written. ``mask_lambda`` and ``density`` of a bundle of masks, and ``noise``, all by task, are set
    before the ``with`` block ends."""

    manifest: Manifest
    _files: Mapping[str | None, NewStreams]
    mask_lambda: dict[str, float] = field(default_factory=dict)
    density: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)

    @property
    def pieces(self) -> list[tuple[str, int, int]]:
        """Name, start and stop of every piece of the stored tensors, in the order of :meth:`append`."""
        return [(name, *piece) for name, tensor in self.manifest.encoded.items() for piece in pieces(tensor.size)]

    def append(self, task: str | None, piece: Coded, step: np.float32 | None = None) -> None:
        """Writes the next piece of a task, or of tau_MTL if it is None, as `encoded`. ``step``: of multiples."""
        self._files[task].append(piece, step)


@contextmanager
def new_bundle(out: Path | str, contents: BundleContents) -> Iterator[NewBundle]:
    """Creates a bundle in the new folder ``out``, which appears only if the ``with`` block succeeds. Every piece of
    every task, and of tau_MTL, must be appended.

    Raises TallmasksError if ``out`` exists, the disk lacks space, or a value cannot be stored.
    """
    draft = _draft(contents)
    with atomic_path(out, sum(fixed_bytes(contents).values()), folder=True, new=True) as folder:
        with ExitStack() as stack:
            files = {
                task: stack.enter_context(new_streams(folder / form[0], *form[1:]))
                for task, form in _forms(draft).items()
            }
            _copy_buffers(contents, draft, files)
            new = NewBundle(draft, files)
            yield new
        known = {"mask_lambda": new.mask_lambda, "density": new.density, "noise": new.noise}
        _describe(folder, contents, draft.model_copy(update=known))


def fixed_bytes(contents: BundleContents) -> dict[str, int]:
    """The size of every file by name, without the card and the pieces of streams. Raises like :func:`new_bundle`."""
    draft = _draft(contents)
    sizes = {name: path.stat().st_size for name, path in _copied_files(contents).items()}
    sizes |= {COMPANIONS + sha256: len(header) for sha256, header in contents.headers.items()}
    sizes |= {file: bytes_of_file(infos, metadata_of(draft)) for file, infos in other_infos(draft).items()}
    sizes |= {form[0]: bytes_without_pieces(*form[1:]) for form in _forms(draft).values()}
    files = {name: PartFile(sha256=_NO_SHA256, bytes=size) for name, size in sizes.items()}
    return {**sizes, MANIFEST: len(_json(draft.model_copy(update={"files": files})))}


def _forms(draft: Manifest) -> dict[str | None, tuple[str, Infos, int, bool, dict[str, str]]]:
    """The files of streams, of each task and, under None, of tau_MTL: the name, and the arguments of `new_streams`."""
    files: dict[str | None, str] = {None: MERGED} if draft.masks else {}
    others, count = other_infos(draft), draft.piece_count
    return {
        task: (file, others[file], count, has_steps(draft, file), metadata_of(draft, task))
        for task, file in (files | draft.task_files).items()
    }


def _copy_buffers(contents: BundleContents, draft: Manifest, files: Mapping[str | None, NewStreams]) -> None:
    averages = {*contents.base.averages}

    def copy(piece: tuple[str, str, int, int]) -> None:
        task, name, start, stop = piece
        is_of_base = name in contents.own.get(task, ()) or name in contents.missing.get(task, ())
        model, dtype = contents.base if is_of_base else contents.models[task], draft.tensors[name].dtype
        if name in averages and model.info(name).dtype != dtype:
            data = cast(model.piece(name, start, stop), dtype, f"{task}: tensor {name}")
        else:
            data = converted(model.raw_bytes(name, start, stop), model.info(name).dtype, dtype)
        files[task].raw[name][nbytes_of(dtype, start) : nbytes_of(dtype, stop)] = data

    buffers = draft.buffers.items()
    parallel(copy, [(task, name, *p) for task in contents.tasks for name, one in buffers for p in pieces(one.size)])


def _draft(contents: BundleContents) -> Manifest:
    """The manifest without file sizes, and with placeholders of the base's checksums."""
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
            names={
                name: file
                for name, file in model.file_names.items()
                if name in own or (name in contents.base.names and contents.base.aliases.get(file) != name)
            },
            companions={name: sha256 for name, (sha256, _) in files.get(task, {}).items()},
            originals=dict(contents.originals.get(task, {})),
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
    is_masked = contents.coding is None
    return Manifest.model_construct(
        format=FORMAT,
        method=contents.method,
        options=dict(contents.options),
        base=BaseOrigin.model_construct(None, **contents.base.origin, included=contents.include_base or None),
        tensors=tensors,
        aliases=dict(sorted(contents.base.aliases.items())),
        tasks=tuple(contents.tasks),
        models=models,
        sizes=ModelSizes(base=contents.sizes[0], models=contents.sizes[1]) if contents.sizes else None,
        coding=contents.coding or "multiples",
        row_step=contents.row_step,
        masks=task_files(contents.tasks, MASKS) if is_masked else {},
        updates={} if is_masked else task_files(contents.tasks, UPDATES),
        files={},
    )


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
            files[task] |= model.indexes if contents.originals.get(task) else {}
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


def _describe(folder: Path, contents: BundleContents, draft: Manifest) -> None:
    """Completes the folder: task-only tensors, copied files, bundle.json and README.md."""
    infos = other_infos(draft)
    for task, model in draft.models.items():
        if model.own_file is not None:
            with new_tensors(folder / model.own_file, infos[model.own_file], metadata_of(draft, task)) as new:
                for name, raw in new.raw.items():
                    raw[...] = contents.models[task].raw_bytes(name, 0, contents.models[task].info(name).size)
    copied = _copied_files(contents)
    for name, source in copied.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    headers = {COMPANIONS + sha256: header for sha256, header in contents.headers.items()}
    for name, header in headers.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(header)
    parts: dict[str, PartFile] = {}

    def take(name: str) -> None:
        parts[name] = PartFile(sha256=sha256_of(folder / name), bytes=(folder / name).stat().st_size)

    parallel(take, [*infos, *copied, *headers])
    digests = dict(zip(draft.tensors, parallel(contents.base.digest, draft.tensors), strict=True))
    tensors = {name: one.model_copy(update={"base_sha256": digests[name]}) for name, one in draft.tensors.items()}
    manifest = draft.model_copy(update={"tensors": tensors, "files": dict(sorted(parts.items()))})
    content = _json(manifest)
    read_manifest(content, MANIFEST)  # never write a manifest that the reader refuses
    atomic_write_bytes(folder / MANIFEST, content)
    config = contents.models[contents.tasks[0]].config if contents.models else {}
    (name, *_) = config.get("architectures") or [""]
    card = model_card(manifest, name if "model_type" in config and str(name).isidentifier() else None)
    atomic_write_bytes(folder / CARD, card.encode())


def _json(manifest: Manifest) -> bytes:
    try:
        return manifest.to_bytes()
    except (TypeError, ValueError, RecursionError) as error:
        raise TallmasksError(f"The bundle's options or mask lambdas cannot be written as JSON: {error}") from None
