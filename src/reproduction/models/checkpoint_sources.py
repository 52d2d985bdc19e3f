"""Resolves `checkpoints` in params.yaml: where fine-tuned checkpoints come from.

Its value is ``finetune`` (nothing is imported), the name of one of the family's publishers, a folder, or a mapping:

    source:    one of these three
    revision:  a commit on the hub (default: the publisher's)
    path:      a local copy of the hub repository, with the same file names
    tasks:     other sources for some tasks, {task: source}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, nearest
from tallmasks.io import hub
from tallmasks.io.file_digests import named_path, sha256_of_file

FINETUNE = "finetune"
FOLDER_SUFFIXES = (".safetensors", ".pt")


@dataclass(frozen=True)
class Publisher:
    """A publisher of fine-tuned models on the hub.

    Attributes:
        models: the publisher's name of each architecture.
        tasks: the publisher's name of each task.
        repository: ``(model, task) -> hub repository``, given the publisher's names.
        file: ``(model, task) -> file in that repository``, given the publisher's names.
        revision: the default commit.
        generation: the version of the checkpoints, written to the metadata of imported checkpoints.
        architecture: maps an architecture's name in params.yaml to a key of ``models``.
    """

    models: Mapping[str, str]
    tasks: Mapping[str, str]
    repository: Callable[[str, str], str]
    file: Callable[[str, str], str]
    revision: str = "main"
    generation: str = ""
    architecture: Callable[[str], str] = str


@dataclass(frozen=True)
class Imported:
    """The location of one checkpoint: on the hub (`repository`, `file`, `revision`) or in a `local` file or folder."""

    source: str
    repository: str | None = None
    file: str | None = None
    revision: str | None = None
    local: Path | None = None

    @property
    def recipe(self) -> dict[str, str]:
        """The location as part of an artifact's recipe; for a local file the recipe also contains its sha256."""
        if self.local is not None:
            return {"source": self.source}
        assert self.repository and self.file and self.revision
        return {"source": self.source, "repository": self.repository, "file": self.file, "revision": self.revision}


def local_copy(pretrained: Mapping[str, Any], files: Sequence[str]) -> Path | None:
    """The first of ``files`` in the folder `local` of `pretrained`, a copy of the hub's files; None without a copy.

    Raises TallmasksError if its sha256 differs from `sha256`.
    """
    folder = Path(pretrained["local"]) if "local" in pretrained else None
    path = next((folder / file for file in files if (folder / file).is_file()), None) if folder else None
    expected = pretrained.get("sha256")
    if path and expected and (found := sha256_of_file(path)) != expected:
        raise TallmasksError(
            f"{path}: sha256 is {found}, expected {expected}; restore the file, or correct `pretrained` in params.yaml"
        )
    return path


def download(pretrained: Mapping[str, Any], files: Sequence[Sequence[str]]) -> tuple[Path, dict[str, str]]:
    """The first of ``files`` from a local copy or the hub, and its origin; the others go into the same folder.

    ``files``: each as alternative names.  Raises TallmasksError if a file is unavailable.
    """
    weights, *others = files
    if "hub" not in pretrained:
        raise TallmasksError(
            f"params.yaml: pretrained: found {', '.join(pretrained)}, expected `hub` and `revision`, or a folder that "
            "transformers saved; a `tag` is for open_clip's models"
        )
    if copied := local_copy(pretrained, weights):
        return copied, {"local": pretrained["local"]}
    repository = pretrained["hub"]
    path, origin = hub.with_origin(
        repository, tuple(weights), pretrained.get("revision", "main"), pretrained.get("sha256")
    )
    for names in others:
        hub.download_first(repository, tuple(names), origin["commit"])
    return path, origin


def source_of(checkpoints: Any, task: str) -> str:
    """The source of a task's checkpoint: ``finetune``, a publisher's name, or a folder."""
    if isinstance(checkpoints, str):
        return checkpoints
    return str(checkpoints.get("tasks", {}).get(task, checkpoints["source"]))


def seen_validation(origins: Mapping[str, Mapping[str, Any]], publishers: Mapping[str, Publisher]) -> str | None:
    """A warning if imported checkpoints may have been fine-tuned on the validation images, else None.

    ``origins``: one entry per task; for an imported checkpoint it contains {"checkpoint": {"source": ...}}.
    """
    sources: dict[str, list[str]] = {}
    for task, origin in origins.items():
        if source := origin.get("checkpoint", {}).get("source"):
            sources.setdefault(source, []).append(task)
    warnings = [
        f"those of {source} ({', '.join(tasks)}) "
        + ("were fine-tuned on most of these images" if source in publishers else "may have seen these images")
        for source, tasks in sources.items()
    ]
    if not warnings:
        return None
    return (
        "alpha and lambda are chosen on this project's validation images, and of the imported checkpoints "
        + "; ".join(warnings)
    )


def locate(
    checkpoints: Any, architecture: Any, task: str, publishers: Mapping[str, Publisher], root: Path = Path()
) -> Imported | None:
    """The location of a task's checkpoint, or None if it is fine-tuned here.  Relative paths start at ``root``.

    Raises TallmasksError if the source has no checkpoint of this model or task.
    """
    settings: Mapping[str, Any] = {"source": checkpoints} if isinstance(checkpoints, str) else checkpoints
    source = source_of(checkpoints, task)
    if source == FINETUNE:
        return None
    if source not in publishers:
        return Imported("folder", local=_in_folder(named_path(root, source), source, task, publishers))
    publisher = publishers[source]
    model = publisher.architecture(architecture if isinstance(architecture, str) else "custom architecture")
    for kind, name, names in (("model", model, publisher.models), ("task", task, publisher.tasks)):
        if name not in names:
            raise TallmasksError(
                f"params.yaml: checkpoints: {source} has no {kind} {name!r}{nearest(name, names)}; available: "
                f"{', '.join(names)}. Set `checkpoints: {FINETUNE}`, or another source for this task in "
                "`checkpoints.tasks`"
            )
    revision = settings.get("revision", publisher.revision) if source == settings["source"] else publisher.revision
    published = publisher.models[model], publisher.tasks[task]
    repository, file = publisher.repository(*published), publisher.file(*published)
    if "path" in settings and source == settings["source"]:
        folder = named_path(root, settings["path"])
        paths = [folder / file, folder / repository / file, folder / repository.split("/")[-1] / file]
        local = next((path for path in paths if path.is_file()), None)
        if local is None:
            raise TallmasksError(f"no file {paths[0]} or {paths[1]}; correct checkpoints.path in params.yaml")
        return Imported(source, local=local)
    return Imported(source, repository, file, revision)


def refuse_adapter(folder: Path) -> None:
    """Raise TallmasksError if a folder contains an adapter of peft and no model."""
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise TallmasksError(
            f"{folder}: found an adapter, such as a LoRA; expected a whole model. Write it with peft: "
            "`model.merge_and_unload().save_pretrained(...)`"
        )


def _in_folder(folder: Path, written: str, task: str, publishers: Mapping[str, Publisher]) -> Path:
    files = [folder / f"{task}{suffix}" for suffix in FOLDER_SUFFIXES]
    for file in files:
        if file.is_file():
            return file
    for model in (folder / task, folder):
        refuse_adapter(model)
    if (folder / task).is_dir():
        return folder / task
    if (folder / "config.json").is_file():
        return folder  # of one model
    hint = "" if folder.is_dir() else nearest(written, (FINETUNE, *publishers))
    raise TallmasksError(
        f"params.yaml: checkpoints: found no {files[0]} and no {files[1].name}{hint}; expected "
        f"{', '.join((FINETUNE, *publishers))}, or a folder with one file or folder per task, or the folder of a model"
    )
