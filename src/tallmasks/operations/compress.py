"""Compress checkpoints of one base into a bundle, in pieces or, by methods for whole matrices, tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import fsum, prod, sqrt
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_models import BundleModel
from tallmasks.bundles.bundle_writer import BundleContents, new_bundle, new_coded_bundle
from tallmasks.errors import OptionError, TallmasksError, option_errors, worded
from tallmasks.io.dtypes import OF_BUNDLES
from tallmasks.masks.equal_lengths import lambdas_without_data
from tallmasks.methods import Method, ScaledMask, TensorPiece, Vector, registry
from tallmasks.methods.codec import Codec
from tallmasks.methods.merges import pieces_of_layout
from tallmasks.methods.options import parse_spec
from tallmasks.methods.streaming import Merging, Stream, check_can_stream
from tallmasks.operations.opened_models import Models, open_models, passes
from tallmasks.parallel import parallel
from tallmasks.vectors import kernels

if TYPE_CHECKING:
    from tallmasks.operations.merge_settings import Settings

METHOD = "lloyd_max"
BITS = 3
"""Default bits of a value of tau_MTL, if no dtype is set."""
OF_MERGE = ("scaling_coefficient", "weight", "density", "normalize", "trim", "out_shard_size", "only", "heads",
            "tokens", "layers")  # fmt: skip
Products = NDArray[np.float64]
"""|tau|^2, tau . h and |h|^2 of one or several slices [..., 3]: tau of a task, and h that a bundle restores."""
SUMMED = 1 << 16
"""Number of values per float32 sum; the last digits of a scale depend on it."""


class Errors(NamedTuple):
    """Relative errors of a restored task vector, |tau - tau'| / |tau|: of all tensors together, and the largest of one
    tensor, with its name."""

    total: float
    largest: float = 0.0
    tensor: str = ""

    def __str__(self) -> str:
        of_tensor = f"; largest {self.largest:.3f}, of {self.tensor}" if self.tensor else ""
        return f"relative error of its task vector {self.total:.3f}{of_tensor}"


def compress(
    base: str | PathLike[str],
    tasks: Mapping[str, str | PathLike[str]],
    out: str | PathLike[str],
    *,
    method: str = METHOD,
    options: Mapping[str, Any] | None = None,
    mask_lambda: float | Mapping[str, float] | None = None,
    dtype: Any = None,
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
        dtype: of the shared vector's values that are not rounded; without `bits`, of all its values.
        bits: 2, 3, 4 or 8: round every value of a matrix to 2^bits levels (default: 3).
        keep_base: patterns of tensor names.

    `tallmasks.load_bundle` opens the bundle. Raises TallmasksError like the command.
    """
    from tallmasks.operations.merge_settings import from_python, in_python  # its libraries are slow to import

    with worded(in_python):
        settings = from_python(
            base,
            tasks,
            out,
            OF_BUNDLES,
            method=method,
            options=options,
            mask_lambda=mask_lambda,
            dtype=dtype,
            bits=bits,
            include_base=include_base,
            keep_base=keep_base,
        )
        write_bundle(*prepare_bundle(settings))
    return settings.output


def prepare_bundle(settings: Settings) -> tuple[Method, Models, BundleContents]:
    with option_errors():
        settings.refuse(OF_MERGE, "merge")
        registry.check_name(settings.method, registry.names_with_masks(), "--method")
        method = registry.masks_over(settings.spec)
        is_option = "bits" in (parse_spec(settings.method)[1].keys() | settings.options)
        bits = settings.bits
        if is_option and bits is not None:
            raise OptionError("--bits: bits is also given as an option of the method; leave one of them out")
        if method.codec is None:
            check_can_stream(method)
            if bits is None and settings.dtype is None and not is_option:
                bits = BITS
        if bits is not None:
            method = registry.with_option(method, "bits", bits)
    has_lambdas = bool(settings.by_task("mask_lambda"))
    if has_lambdas and (method.scaled_mask or method.codec):
        raise OptionError(f"--mask-lambda: {method.name} has no mask lambdas; leave it out, or use `--method ties`")
    if method.codec and settings.dtype not in (None, "float32"):
        raise OptionError(
            f"--dtype: found {settings.dtype}, but {method.name} has no shared vector, which --dtype is for;"
            " leave it out, or use `--method ties`"
        )
    models = open_models(settings, keeps_own=True)
    if restored := [one.title for one in (models.base, *models.whole.values()) if isinstance(one, BundleModel)]:
        raise TallmasksError(
            f"{restored[0]}: found a task of a bundle, whose error would grow; expected an original model. If there is"
            " none, write this one with `tallmasks export` first"
        )
    origin = dict(models.base.origin)
    if "path" in origin:
        folder = settings.output.parent if settings.output else Path()
        origin["path"] = _path_from(folder, Path(origin["path"]))
    contents = BundleContents(
        method=method.name,
        base=replace(models.base, origin=origin),
        tasks=list(settings.tasks),
        options=settings.options,
        dtype=settings.dtype or _common_dtype(models),
        unchanged=set(models.base.tensors).difference(models.layout.names, models.buffers),
        buffers=models.buffers,
        models=models.whole,
        own=models.own,
        missing=models.missing,
        sizes=models.nbytes,
        mask_lambda={} if method.scaled_mask else settings.by_task("mask_lambda"),
        by_task=method.codec is not None,
        codings=method.codings(models.layout, len(settings.tasks)),
        include_base=settings.include_base,
    )
    return method, models, contents


def _path_from(folder: Path, base: Path) -> str:
    """The relative path of the base, or only its name if the path would publish the name of the home folder."""
    base, folder = base.absolute().parent.resolve() / base.name, folder.resolve()
    home = Path("~").expanduser().resolve()
    if base.is_relative_to(home) and not folder.is_relative_to(home):
        return base.name
    return os.path.relpath(base, folder)


def _common_dtype(models: Models) -> str:
    """The dtype of all checkpoints if they share one that a bundle can store; otherwise float32."""
    every = (models.base, *models.whole.values())
    codes = {one.info(name).dtype for one in every for name in models.layout.names if name in one.names}
    by_code = {code: name for name, code in OF_BUNDLES.items()}
    return by_code.get(codes.pop(), "float32") if len(codes) == 1 else "float32"


def write_bundle(
    method: Method, models: Models, contents: BundleContents
) -> tuple[dict[str, float], dict[str, Errors]]:
    """Write the bundle. Returns each task's lambda or scale, if any, and the errors of its task vector."""
    settings = models.settings
    if method.codec:
        return {}, _write_coded(method.codec, method.chosen, models, contents)
    needs_lambdas = not method.scaled_mask and settings.by_task("mask_lambda").keys() != settings.tasks.keys()
    with models.progress("compressing", passes(method.merge) + needs_lambdas) as progress:
        stream = models.stream(progress)
        merging = Merging(registry.get_merge(str(method.merge)), stream)
        lambdas = settings.by_task("mask_lambda")
        if needs_lambdas:
            lambdas = dict(zip(settings.tasks, _lambdas_without_data(stream, merging), strict=True)) | lambdas
        with new_bundle(settings.output, contents) as new:
            new.mask_lambda.update(lambdas)

            def work(piece: TensorPiece) -> tuple[list[list[tuple[float, float]]], Products]:
                vectors = stream.task_vectors_at(piece)
                merged = merging(piece, vectors)
                if method.scaled_mask is None:
                    packed = list(kernels.pack_masks(vectors, merged, list(lambdas.values())))
                    lengths: list[list[tuple[float, float]]] = []
                else:
                    of = prod(stream.layout.by_name[piece.name])
                    packed, lengths = _scaled(method.scaled_mask, vectors, merged, of)
                stored = new.write(piece.name, piece.start, merged, dict(zip(settings.tasks, packed, strict=True)))
                held = (stored * np.unpackbits(bits, count=stored.size, bitorder="little") for bits in packed)
                return lengths, np.array([_products(*pair) for pair in zip(vectors, held, strict=True)])

            jobs = pieces_of_layout(stream.layout, merging.over_tensors, new.unit)
            every = parallel(work, jobs, merging.threads)
            pieces = [one for one, _ in every]
            if method.scaled_mask and pieces:
                for task, pairs in zip(settings.tasks, zip(*pieces, strict=True), strict=True):
                    own, held = map(fsum, zip(*chain(*pairs), strict=True))  # of all pieces
                    new.scale[task] = method.scaled_mask.scale(own, held)
            by_tensor: dict[str, Products] = {}
            for piece, (_, products) in zip(jobs, every, strict=True):
                by_tensor[piece.name] = by_tensor.get(piece.name, 0) + products
            errors = {
                task: _errors({name: products[number] for name, products in by_tensor.items()}, new.scale[task])
                for number, task in enumerate(settings.tasks)
            }
            new.error.update({task: one.total for task, one in errors.items()})
    return new.scale if method.scaled_mask else lambdas, errors


def _lambdas_without_data(stream: Stream, merging: Merging) -> list[float]:
    def read(piece: TensorPiece) -> tuple[Sequence[Vector], Vector]:
        vectors = stream.task_vectors_at(piece)
        return vectors, merging(piece, vectors)

    return lambdas_without_data(
        len(stream.changes), read, pieces_of_layout(stream.layout, merging.over_tensors), merging.threads
    )


def _products(vector: Vector, held: Vector) -> Products:
    return np.array([np.einsum("i,i", *pair) for pair in ((vector, vector), (vector, held), (held, held))])


def _errors(products: Mapping[str, Products], scale: float = 1.0) -> Errors:
    """The errors of tau' = scale * h, from the products by tensor."""

    def relative(of: Products) -> float:
        own, both, held = of.tolist()
        return sqrt(max(own - 2 * scale * both + scale**2 * held, 0) / own) if own else 0.0

    each = {name: relative(of) for name, of in products.items()}
    total = relative(np.sum([*products.values(), np.zeros(3)], axis=0))
    if not each:
        return Errors(total)
    worst = max(each, key=each.__getitem__)
    return Errors(total, each[worst], worst)


def _write_coded(
    codec: Codec, options: Mapping[str, Any], models: Models, contents: BundleContents
) -> dict[str, Errors]:
    """Write a bundle of separately compressed tensors. Returns the errors of each task vector."""
    with (
        models.progress("compressing", passes(None)) as progress,
        new_coded_bundle(models.settings.output, contents) as new,
    ):
        stream = models.stream(progress)
        products: dict[str, dict[str, Products]] = {task: {} for task in contents.tasks}

        def work(job: tuple[TensorPiece, str]) -> None:
            piece, task = job
            coding = new.manifest.codings[piece.name]
            tensor = stream.task_vector_at(task, piece).reshape(coding.shape)
            content = codec.content(tensor, coding, **options)
            new.write(task, piece.name, content)
            restored, tau = np.asarray(coding.values(content), np.float32).reshape(-1), tensor.reshape(-1)
            parts = kernels.in_pieces(tau.size, lambda part: _products(tau[part], restored[part]))
            products[task][piece.name] = np.sum(parts, axis=0)

        # one tensor at a time: it can be large, and matrix products use several threads
        every = pieces_of_layout(stream.layout, whole_tensors=True)
        parallel(work, [(piece, task) for piece in every for task in contents.tasks], threads=1)
        errors = {task: _errors(of_task) for task, of_task in products.items()}
        new.error.update({task: one.total for task, one in errors.items()})
    return errors


def _scaled(
    how: ScaledMask, vectors: Sequence[Vector], merged: Vector, size: int
) -> tuple[list[NDArray[np.uint8]], list[list[tuple[float, float]]]]:
    """Each task's packed mask of a slice, and for each part of the slice the lengths of tau_t and of the masked vector.

    ``size`` is the number of values of the whole tensor."""
    packed, lengths = [], []
    for vector in vectors:
        mask = how.mask(vector, merged)
        packed.append(np.packbits(mask, bitorder="little"))
        parts = [slice(start, start + SUMMED) for start in range(0, vector.size, SUMMED)]
        lengths.append([(how.length(vector[part], size), how.length((merged * mask)[part], size)) for part in parts])
    return packed, lengths
