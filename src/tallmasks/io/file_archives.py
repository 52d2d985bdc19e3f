"""A folder as one artifact: a safetensors file with one uint8 tensor per file, named by its relative path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import TensorInfo, new_tensors, open_tensors

FORMAT = "tallmasks/files/1"


def archive_folder(folder: Path, out: Path, metadata: Mapping[str, str]) -> None:
    """Write all files under a folder into ``out``. Raises TallmasksError if the disk is full."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    infos = {name: TensorInfo("U8", (path.stat().st_size,)) for name, path in files.items()}
    with new_tensors(out, infos, {**metadata, "format": FORMAT}) as new:
        for name, path in files.items():
            with path.open("rb") as file:
                file.readinto(new.tensors[name].data)


def archived_files(path: Path) -> dict[str, NDArray[np.uint8]]:
    """The bytes of an archive's files by relative path, memory-mapped and read-only. Raises TallmasksError if it is not
    an archive, or if a path leaves the folder."""
    archive = open_tensors(path, FORMAT)
    for name in archive.names:
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise TallmasksError(f"{path}: file name {name!a} is not a path within the folder. Delete the archive.")
    return {name: archive.raw_bytes(name) for name in archive.names}
