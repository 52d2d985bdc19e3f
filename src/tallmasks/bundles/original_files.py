"""The weight files of models as they were: with their headers stored, a lossless bundle gives them back byte for byte,
so with the same sha256. Only for safetensors files: of others, the tensors come back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tallmasks.bundles.manifest import Manifest, OriginalFile, TaskModel
from tallmasks.errors import TallmasksError, name_some
from tallmasks.io.tensor_files import infos_of_header, open_tensors
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import COMPARED, Checkpoint, PlannedFile, sha256_of
from tallmasks.vectors.checkpoints.folders import part_prefix
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS


def originals_of(task: Checkpoint, base: Checkpoint) -> tuple[dict[str, OriginalFile], dict[str, bytes]]:
    """A task's weight files by name, and their headers by sha256. Both are empty if `export` cannot write these files:
    it writes safetensors files, and a folder if the base is one."""
    if type(task) is not Checkpoint or task.is_folder != base.is_folder:
        return {}, {}
    if not all(file.endswith(SAFETENSORS) for file in task.files):
        return {}, {}
    names, originals, headers = {task.file_name(name): name for name in task.names}, {}, {}
    digests = parallel(sha256_of, task.files.values())
    for (file, path), sha256 in zip(task.files.items(), digests, strict=True):
        opened, copies = open_tensors(path), {}
        for in_file, info in opened.infos.items():
            if part_prefix(file) + in_file in names:
                continue
            copied = (name for name, one in task.tensors.items() if one == info)  # of a tied tensor, which is left out
            content = opened.raw_bytes(in_file)
            if (
                name := next((n for n in copied if np.array_equal(task.raw_bytes(n, 0, info.size), content)), None)
            ) is None:
                return {}, {}
            copies[in_file] = name
        header = opened.header
        digest = hashlib.sha256(header).hexdigest()
        originals[file], headers[digest] = OriginalFile(sha256=sha256, header=digest, copies=copies), header
    return originals, headers


def planned_originals(model: Checkpoint, of_task: TaskModel, headers: dict[str, Path]) -> list[PlannedFile]:
    """The files that `export` writes. ``headers``: checked files by name of the weight file. Raises TallmasksError if a
    header does not fit the model."""
    names = {model.file_name(name): model.aliases.get(name, name) for name in model.names}
    files, found = [], set()
    for file, original in of_task.originals.items():
        header = headers[file].read_bytes()
        try:
            infos = infos_of_header(header)
            in_model = {one: original.copies.get(one, part_prefix(file) + one) for one in infos}
            in_model = {one: names.get(name, name) for one, name in in_model.items()}
            if odd := [one for one, name in in_model.items() if model.tensors.get(name) != infos[one]]:
                raise ValueError(f"{odd[0]!a} is not a tensor of the model")
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise TallmasksError(
                f"{model.title}: the stored header of {file} is damaged: {str(error)[:150]!a}; tallmasks did not write"
                " this bundle"
            ) from None
        files.append(PlannedFile(file, infos, in_model, {}, header))
        found |= {*in_model.values()}
    if files and (lacking := model.tensors.keys() - found):
        raise TallmasksError(
            f"{model.title}: no stored header has the tensor {min(lacking)}; tallmasks did not write this bundle"
        )
    return files


def sha256_of_planned(model: Checkpoint, file: PlannedFile) -> str:
    """That of the file that `export` writes."""
    digest = hashlib.sha256(file.header or b"")
    for in_file, info in file.infos.items():
        for start in range(0, info.size, COMPARED):
            digest.update(model.raw_bytes(file.names[in_file], start, min(start + COMPARED, info.size)).data)
    return digest.hexdigest()


def exactness(manifest: Manifest) -> str:
    """What comes back of the files of a lossless bundle, in a sentence."""
    exact = [task for task in manifest.tasks if manifest.model(task).originals]
    tensors = [task for task in manifest.tasks if task not in exact]
    files = f"`tallmasks export` writes the weight files of {name_some(exact)} with the sha256 of the originals"
    only = (
        f"of {name_some(tensors)}, the tensors come back bit for bit, but not the files: `export` writes safetensors"
        " files in the form of the base, and these are LoRAs, files of torch.save, or a file beside a base folder"
    )
    return "; ".join([*([files] if exact else []), *([only] if tensors else [])])
