"""Compress checkpoints of one base into a bundle, in pieces or, by methods for whole matrices, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_models import BundleModel
from tallmasks.bundles.bundle_parts import manifest_of, open_location
from tallmasks.bundles.bundle_writer import BundleContents, new_bundle
from tallmasks.bundles.manifest import Manifest, OriginalFile
from tallmasks.bundles.original_files import originals_of
from tallmasks.bundles.streams import Coded, bytes_of_piece, encoded, mask_words
from tallmasks.errors import OptionError, TallmasksError, option_errors
from tallmasks.masks.equal_lengths import lambdas_without_data
from tallmasks.methods import Method, PerTask, TensorPiece, Vector, in_few_bits, registry
from tallmasks.methods.codec import encode_bit_deltas, quantized_piece, value_of
from tallmasks.methods.merges import pieces_of_layout
from tallmasks.methods.options import parse_spec
from tallmasks.methods.streaming import Stream, StreamedMerge, check_can_stream
from tallmasks.operations.merge_recipes import path_from
from tallmasks.operations.opened_models import Models, open_models, passes
from tallmasks.operations.tensor_roles import Role
from tallmasks.parallel import in_batches
from tallmasks.vectors import kernels
from tallmasks.vectors.multiples import PIECE, pieces, row_rms, sum_of_squares

if TYPE_CHECKING:
    from tallmasks.operations.merge_settings import Settings

METHOD = "stochastic_rounding"
BITS = 3
"""Default bits of a value of the shared vector."""
Squares = NDArray[np.float64]
"""The squared length of the error of a piece's restored weights, that of the fine-tuned weights, and their number;
float64 [3]."""


def compress(
    base: str | PathLike[str],
    tasks: Mapping[str, str | PathLike[str]],
    out: str | PathLike[str],
    *,
    method: str = METHOD,
    options: Mapping[str, Any] | None = None,
    mask_lambda: float | Mapping[str, float] | None = None,
    step: float | None = None,
    bits: int | None = None,
    include_base: bool = False,
    keep_base: Sequence[str] | None = None,
) -> Path:
    """Compress checkpoints of one base into a bundle, like `tallmasks compress`, and return its path.

    Args:
        base: a file, a folder, or a repository `org/name@revision`.
        tasks: the fine-tuned checkpoints by task.
        out: a new folder.
        options: options of the method, for example {"keep": 0.1}.
        mask_lambda: one value, or a mapping by task.
        step: of `stochastic_rounding`, in units of the root mean square of each row of the base (default: 0.1). With a
            larger one, the bundle is smaller and the noise larger.
        bits: for methods with masks: approximate bits per value of the shared vector, 2, 3, 4 or 8 (default: 3).
        keep_base: patterns of tensor names.

    `tallmasks.load_bundle` opens the bundle. Raises TallmasksError like the command.
    """
    from tallmasks.operations.merge_settings import from_python  # its libraries are slow to import

    for name, value in (("step", step), ("bits", bits)):
        if value is not None and name in (options or {}):
            raise OptionError(f"{name} is also given as an option of the method; leave one of them out")
        if value is not None:
            options = {**(options or {}), name: value}
    settings = from_python(
        base,
        tasks,
        out,
        method=method,
        options=options,
        mask_lambda=mask_lambda,
        include_base=include_base,
        keep_base=keep_base,
    )
    write_bundle(*prepare_bundle(settings))
    return settings.output


def prepare_bundle(settings: Settings) -> tuple[Method, Models, BundleContents]:
    with option_errors():
        method = _method_of(settings)
    is_exact = bool(method.codec and method.codec.encode is None)
    if is_exact and settings.keep_base:
        raise OptionError(f"keep_base: {method.name} stores every tensor exactly; leave it out")
    models = open_models(settings, for_bundle=True, exact=is_exact)
    if restored := [one.title for one in (models.base, *models.tasks.values()) if isinstance(one, BundleModel)]:
        raise TallmasksError(
            f"{restored[0]}: found a task of a bundle, whose error would grow; expected an original model. If there is"
            " none, write this one with `tallmasks export` first"
        )
    originals: dict[str, dict[str, OriginalFile]] = {}
    headers: dict[str, bytes] = {}
    if is_exact:
        _check_forms(models)
        for task, one in models.tasks.items():
            originals[task], of_task = originals_of(one, models.base)
            headers |= of_task
    origin = dict(models.base.origin)
    if "path" in origin:
        folder = settings.output.parent if settings.output else Path()
        origin["path"] = path_from(folder, Path(origin["path"]))
    contents = BundleContents(
        method=method.name,
        base=replace(models.base, origin=origin),
        tasks=list(settings.tasks),
        **(method.codec.form(method.values) if method.codec else {}),
        options=settings.options,
        unchanged=models.roles.names(Role.UNCHANGED, Role.LEFT_OUT),
        buffers=models.roles.names(Role.OWN),
        models=models.tasks,
        own=models.roles.by_task(Role.TASK_ONLY),
        missing=models.roles.by_task(Role.BASE_ONLY),
        originals=originals,
        headers=headers,
        sizes=models.nbytes,
        include_base=settings.include_base,
    )
    return method, models, contents


def _method_of(settings: Settings) -> Method:
    """The method with its options. Raises OptionError or TallmasksError for options that it does not have."""
    registry.check_name(settings.method, registry.names_with_masks(), "method")
    name, options = parse_spec(settings.method)
    if isinstance(registry.get(name).usage, PerTask) and not registry.get(name).codec:
        raise OptionError(f"method: {name} cannot be stored in a bundle; use {METHOD}, the default")
    row, given = registry.masks_over(name), {**options, **settings.options}
    if row.codec is None:
        check_can_stream(row)
        given = {"bits": BITS} | given
    elif settings.by_task("mask_lambda"):
        raise OptionError(f"mask_lambda: {row.name} has no mask lambdas; leave it out, or use method ties")
    return registry.get(registry.spec_of({row.name: given}, "method"))


def _check_forms(models: Models) -> None:
    for task, one in models.tasks.items():
        for name in (one.tensors.keys() & models.base.tensors.keys()) - models.roles.of_tasks[task].keys():
            if (found := one.info(name)) != (expected := models.base.info(name)):
                raise TallmasksError(
                    f"{task}: tensor {name} is {found.dtype} {list(found.shape)} and the base's is {expected.dtype}"
                    f" {list(expected.shape)}; method lossless needs models of one dtype. Save both in the same one"
                )


def write_bundle(method: Method, models: Models, contents: BundleContents) -> tuple[dict[str, float], Manifest]:
    """Write the bundle. Returns each task's lambda, for a bundle of masks, and the manifest."""
    if method.codec:
        return {}, _write_updates(method, models, contents)
    settings = models.settings
    lambdas = settings.by_task("mask_lambda")
    needs_lambdas = lambdas.keys() != settings.tasks.keys()
    with models.progress("compressing", passes(method.merge) + needs_lambdas) as progress:
        stream = models.stream(progress)
        merging = StreamedMerge(registry.get_merge(str(method.merge)), stream)
        if needs_lambdas:
            lambdas = dict(zip(settings.tasks, _lambdas_without_data(stream, merging), strict=True)) | lambdas
        bits, count = int(method.values["bits"]), len(settings.tasks)

        def encode(piece: TensorPiece, vectors: Sequence[Vector], merged: Vector) -> tuple[Any, ...]:
            """The step and streams of a piece, the number of values in each mask, its name and `Squares` by task."""
            theta, shape = stream.pretrained(piece.name, piece.start, piece.stop), stream.layout.by_name[piece.name]
            quantized = in_few_bits(merged, shape, bits)
            packed = kernels.pack_masks(vectors, merged, [lambdas[task] for task in settings.tasks])
            masks = np.unpackbits(packed, axis=1, count=merged.size, bitorder="little")
            held = value_of(quantized, shape, piece.start) * masks
            squares = [squares_of(vector, restored, theta) for vector, restored in zip(vectors, held, strict=True)]
            streams = [encoded(quantized.integers), *(encoded(mask_words(mask, merged.size)) for mask in packed)]
            return quantized.scale, streams, masks.sum(axis=1), (piece.name, squares)

        def work(piece: TensorPiece) -> list[tuple[Any, ...]]:
            vectors = stream.task_vectors_at(piece)
            merged = merging(piece, vectors)
            parts = [slice(*part) for part in pieces(merged.size)]
            return [
                encode(
                    TensorPiece(piece.name, piece.start + part.start, piece.start + part.stop),
                    [vector[part] for vector in vectors],
                    merged[part],
                )
                for part in parts
            ]

        with new_bundle(settings.output, contents) as new:
            every = pieces_of_layout(stream.layout, merging.over_tensors, PIECE)
            kept, squares = np.zeros(count), []
            for step, streams, counts, of_piece in chain.from_iterable(in_batches(work, every, merging.threads)):
                new.append(None, streams[0], step)
                for task, mask in zip(settings.tasks, streams[1:], strict=True):
                    new.append(task, mask)
                kept += counts
                squares.append(of_piece)
            new.mask_lambda.update(lambdas)
            new.density.update(zip(settings.tasks, kept / max(stream.layout.size, 1), strict=True))
            new.noise.update(zip(settings.tasks, noise_of_tasks(squares, count), strict=True))
    return lambdas, manifest_of(open_location(settings.output))


def _lambdas_without_data(stream: Stream, merging: StreamedMerge) -> list[float]:
    def read(piece: TensorPiece) -> tuple[Sequence[Vector], Vector]:
        vectors = stream.task_vectors_at(piece)
        return vectors, merging(piece, vectors)

    return lambdas_without_data(
        len(stream.changes), read, pieces_of_layout(stream.layout, merging.over_tensors), merging.threads
    )


def _write_updates(method: Method, models: Models, contents: BundleContents) -> Manifest:
    tasks = models.tasks
    with models.progress("compressing", 1) as progress, new_bundle(models.settings.output, contents) as new:
        encode, every = encoder(method, models, models.stream(progress)), [TensorPiece(*piece) for piece in new.pieces]
        squares = []
        for piece, of_piece in zip(every, in_batches(encode, every), strict=True):
            for task, (stream, step, _) in zip(tasks, of_piece, strict=True):
                new.append(task, stream, step)
            squares.append((piece.name, [one for *_, one in of_piece]))
        new.noise.update(zip(tasks, noise_of_tasks(squares, len(tasks)), strict=True))
    return manifest_of(open_location(models.settings.output))


Encoded = tuple[Coded, np.float32 | None, Squares]
"""A piece of a task as stored, its step, and its squares."""


def encoder(method: Method, models: Models, stream: Stream) -> Callable[[TensorPiece], list[Encoded]]:
    """A function that encodes a piece of every task."""
    codec = method.codec
    assert codec is not None

    def exact(piece: TensorPiece) -> list[Encoded]:
        width = models.base.info(piece.name).nbytes // models.base.info(piece.name).size
        patterns = [
            one.raw_bytes(piece.name, piece.start, piece.stop).view(f"i{width}")
            for one in (models.base, *(models.source(task, piece.name) for task in models.tasks))
        ]
        return [(encode_bit_deltas(one, patterns[0]), None, np.zeros(3)) for one in patterns[1:]]

    def rounded(piece: TensorPiece) -> list[Encoded]:
        theta, shape = stream.pretrained(piece.name, piece.start, piece.stop), stream.layout.by_name[piece.name]
        rms, every = row_rms(theta, shape, piece.start), list[Encoded]()
        for tau in stream.task_vectors_at(piece):
            quantized = quantized_piece(codec, tau, rms, piece.name, shape, piece.start, **method.values)
            restored = value_of(quantized, shape, piece.start)
            every.append((encoded(quantized.integers), quantized.scale, squares_of(tau, restored, theta)))
        return every

    return exact if codec.encode is None else rounded


STEPS = (0.05, 0.1, 0.2, 0.4)
"""Steps that a dry run compares."""
_MOST_ESTIMATED = 1 << 24
"""Values of a task that a dry run encodes; of a larger model, it encodes every n-th piece."""


def estimated_sizes(method: Method, models: Models) -> list[tuple[str, int, float | None]]:
    """What is estimated, the bytes of all streams, and the largest noise of a task; for `stochastic_rounding` with
    several steps. Measured on a part of the pieces of larger models. For masks, an upper bound by formula."""
    if method.codec is None:
        bits = int(method.values["bits"]) + len(models.tasks)
        return [(method.name, bits * models.layout.size // 8, None)]
    every = pieces_of_layout(models.layout, step=PIECE)
    some = every[:: 1 + models.layout.size // _MOST_ESTIMATED]
    share = sum(piece.stop - piece.start for piece in some) / max(models.layout.size, 1) or 1
    steps = sorted({*STEPS, method.values["step"]}) if "step" in method.values else []
    estimates: list[tuple[str, int, float | None]] = []
    for one in [registry.with_option(method, "step", step) for step in steps] or [method]:
        results = [*in_batches(encoder(one, models, models.stream(lambda count: None)), some)]
        squares = [(piece.name, [one for *_, one in each]) for piece, each in zip(some, results, strict=True)]
        nbytes = sum(bytes_of_piece(stream, step) for of_piece in results for stream, step, _ in of_piece) / share
        name = f"--step {one.values['step']:g}" if steps else one.name
        estimates.append((name, int(nbytes), max(noise_of_tasks(squares, len(models.tasks))) if steps else None))
    return estimates


def squares_of(vector: Vector, restored: Vector, theta: Vector) -> Squares:
    """`Squares` of a piece of a task vector and of the restored one."""
    return np.array([*sum_of_squares(vector - restored), *sum_of_squares(vector + theta), vector.size])


def noise_of_tasks(pieces: Sequence[tuple[str, Sequence[Squares]]], tasks: int) -> list[float]:
    """Each task's noise: the relative error of a tensor's restored weights, as the root mean square over the tensors,
    weighted by their sizes. A few large tensors would otherwise hide the error of all others.

    Args:
        pieces: the name of the tensor and `Squares` by task, for each piece.
    """
    of_tensors: dict[str, NDArray[np.float64]] = {}
    for name, squares in pieces:
        of_tensors[name] = of_tensors.get(name, 0) + np.array(squares)
    error, weights, sizes = np.moveaxis(np.array([np.zeros((tasks, 3)), *of_tensors.values()]), 2, 0)
    relative = np.divide(error, weights, out=np.sign(error), where=weights > 0)  # 1 for weights that should be 0
    return list(np.sqrt((sizes * relative).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1)))
