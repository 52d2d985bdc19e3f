"""Write a checkpoint like another one, piece by piece: same files, tensors and companions, other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import OptionError, TallmasksError, needed_for
from tallmasks.io.atomic_files import atomic_path, no_disk_space
from tallmasks.io.dtypes import DTYPES, FLOATS, code_of, nbytes_of, torch_dtypes
from tallmasks.io.tensor_files import new_tensor_file
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, PlannedFile
from tallmasks.vectors.checkpoints.float_bytes import cast, narrowed, rounded
from tallmasks.vectors.checkpoints.planned_files import planned, small_files
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS, TORCH

_COPIED = 1 << 21  # values copied at once; even, because two values of F4 share a byte

Places = Mapping[str, Sequence[NDArray[np.uint8]]]
"""The bytes of every tensor of a new checkpoint, once for each of its names; a tied tensor can have several."""


class NewCheckpoint:
    """A checkpoint being written; see :func:`new_checkpoint`."""

    def __init__(self, out: Path, base: Checkpoint, dtypes: Mapping[str, str], bytes_of: Places) -> None:
        self._out, self._base, self._dtypes, self._bytes_of = out, base, dtypes, bytes_of
        self._written: set[str] = set()

    def write(self, name: str, start: int, values: NDArray[np.float32]) -> None:
        """Write values of a flattened float tensor from ``start`` on, float32 [n], rounded to nearest even.

        Thread-safe, in any order; write all values of a tensor or none. Raises TallmasksError if a value is NaN,
        infinite, or too large for the dtype.
        """
        name = self._base.aliases.get(name, name)
        dtype = self._dtypes[name]
        self._put(name, start * FLOATS[dtype], narrowed(values, dtype, f"{self._out}: tensor {name}"))
        self._written.add(name)

    def finish(self, progress: Callable[[int], None]) -> None:
        """Copy all tensors that were not written from the base."""
        pieces = (
            (name, start, min(start + _COPIED, info.size))
            for name, info in self._base.tensors.items()
            if name not in self._written
            for start in range(0, info.size, _COPIED)
        )

        def copy(piece: tuple[str, int, int]) -> None:
            self._copy(*piece)
            progress(piece[2] - piece[1])

        parallel(copy, pieces)

    def _copy(self, name: str, start: int, stop: int) -> None:
        info = self._base.info(name)
        if (dtype := self._dtypes[name]) != info.dtype:
            values = self._base.piece(name, start, stop)
            is_mask = name in self._base.buffers  # a mask of -1e9 becomes -inf in float16, as in torch
            data = rounded(values, dtype) if is_mask else cast(values, dtype, f"{self._out}: tensor {name}")
            self._put(name, start * FLOATS[dtype], data)
            return
        self._put(name, nbytes_of(dtype, start), self._base.raw_bytes(name, start, stop))

    def _put(self, name: str, start: int, data: NDArray[np.uint8]) -> None:
        for place in self._bytes_of[name]:
            place[start : start + data.size] = data


@contextmanager
def new_checkpoint(
    out: Path,
    base: Checkpoint,
    card: str | None = None,
    dtype: str | None = None,
    shard_size: int | None = None,
    more: Mapping[str, str | bytes] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[NewCheckpoint]:
    """Write a checkpoint like ``base``; it appears at ``out`` on a clean exit.

    Files, shards, index and companions are like the base's. Tensors that are not written are copied byte for byte.
    torch.save files become safetensors, with tied tensors under each name. Only a single file with the suffix .pt,
    .pth, .bin or .ckpt is saved with torch.save, with tied tensors once.

    Args:
        out: a new path, or an empty folder.
        base: the model to copy; not a LoRA.
        card: the text of a folder's README.md.
        dtype: F16, BF16, F32, F64 or their torch names, for all float tensors (default: those of the base).
        shard_size: the most bytes of tensors per weight file, larger tensors aside (default: the base's files).
        more: the content of other files of a folder, by name.
        progress: called with the number of values each time some were copied from the base.

    Raises TallmasksError if ``out`` exists, the disk is too full (before anything is written), or a value is not finite
    in its dtype.
    """
    out, code = Path(out), _code(dtype)
    dtypes, files = _plan(out, base, code, shard_size)
    with ExitStack() as stack:
        if base.is_folder:
            texts = small_files(base, files, card, code)
            texts |= {name: text.encode() if isinstance(text, str) else text for name, text in (more or {}).items()}
            bytes_of = stack.enter_context(_new_folder(out, base, files, texts))
        elif out.suffix in TORCH:
            bytes_of = stack.enter_context(_new_torch_file(out, base, dtypes, files[0].size))
        else:
            bytes_of = stack.enter_context(_new_weight_files(base, {out: files[0]}))
        new = NewCheckpoint(out, base, dtypes, bytes_of)
        yield new
        new.finish(progress)


@contextmanager
def _new_folder(
    out: Path, base: Checkpoint, files: Sequence[PlannedFile], texts: Mapping[str, bytes | Path]
) -> Iterator[Places]:
    sizes = (len(text) if isinstance(text, bytes) else text.stat().st_size for text in texts.values())
    with atomic_path(out, sum(file.size for file in files) + sum(sizes), folder=True, new=True) as hidden:
        for name, text in texts.items():
            (hidden / name).parent.mkdir(parents=True, exist_ok=True)
            (hidden / name).write_bytes(text if isinstance(text, bytes) else text.read_bytes())
        with _new_weight_files(base, {hidden / file.name: file for file in files}) as bytes_of:
            yield bytes_of


@contextmanager
def _new_weight_files(base: Checkpoint, files: Mapping[Path, PlannedFile]) -> Iterator[Places]:
    bytes_of: dict[str, list[NDArray[np.uint8]]] = {}
    with ExitStack() as stack:
        for path, file in files.items():
            new = stack.enter_context(new_tensor_file(path, file.infos, file.metadata, file.header, new=True))
            for in_file, name in file.names.items():
                bytes_of.setdefault(base.aliases.get(name, name), []).append(new.raw[in_file])
        yield bytes_of


@contextmanager
def _new_torch_file(out: Path, base: Checkpoint, dtypes: Mapping[str, str], size: int) -> Iterator[Places]:
    """A state dict in memory that is saved with torch.save at the end. ``size``: about that of the file."""
    with needed_for(f"writing a {out.suffix} file"):
        import torch

    with atomic_path(out, size, new=True) as hidden:
        tensors = {
            name: torch.empty(base.info(name).shape, dtype=torch_dtypes()[code], device="cpu")
            for name, code in dtypes.items()
        }
        yield {name: [tensor.view(-1).view(torch.uint8).numpy()] for name, tensor in tensors.items()}
        state = {base.file_name(name): tensors[base.aliases.get(name, name)] for name in base.file_of}
        try:
            torch.save(state, hidden)
        except RuntimeError as error:  # torch raises this if the disk is full
            raise no_disk_space(out, size) from error


def bytes_of_new(out: Path, base: Checkpoint, dtype: str | None = None, shard_size: int | None = None) -> int:
    """The size in bytes of the weight files of a `new_checkpoint`. Raises as that does."""
    return sum(file.size for file in _plan(out, base, _code(dtype), shard_size)[1])


def _code(dtype: str | None) -> str | None:
    if dtype is None:
        return None
    if (code := code_of(dtype)) in FLOATS:
        return code
    names = ", ".join(DTYPES[code].torch for code in FLOATS)
    raise TallmasksError(f"found the dtype {dtype}; expected one of {names}")


def _plan(
    out: Path, base: Checkpoint, code: str | None, shard_size: int | None
) -> tuple[dict[str, str], list[PlannedFile]]:
    if base.is_folder and out.suffix in (SAFETENSORS, *TORCH):
        raise OptionError(
            f"{out}: {base.title} is a folder, so the output is a folder too; expected a name without {out.suffix}."
            " Choose another name"
        )
    if out.suffix not in (SAFETENSORS, *TORCH) and not base.is_folder:
        raise OptionError(
            f"{out}: {base.title} is a single file, so the output is one too; expected a name ending in"
            f" {SAFETENSORS}, {', '.join(TORCH)}"
        )
    if shard_size is not None and not base.is_folder:
        raise OptionError(
            f"{out}: found a shard size for a single file; expected it for folders only. Leave it out, or give the base"
            " as a folder"
        )
    dtypes = {name: code if code and info.is_float else info.dtype for name, info in base.tensors.items()}
    return dtypes, planned(base, dtypes, None if base.is_folder else out.name, shard_size)
