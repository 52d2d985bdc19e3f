"""Checkpoints that others have fine-tuned: where they are published, and their tensors under this project's names.

`checkpoints` in params.yaml is ``finetune`` (nothing is imported), the name of a source in `SOURCES`, or a folder; or a
mapping of

    source:    one of these
    revision:  the hub revision, a commit to be pinned; without it the one that is known here ("published"), or "main"
    path:      a local copy of the hub's files, with the hub's file names
    tasks:     another source for some tasks, {task: source}

What is read is a state dict of open_clip's (also without its text transformer, under a prefix such as ``model.``), or
of transformers' CLIPVisionModel.  Every tensor of the image encoder must be there, in its shape and as finite floats,
and nothing unknown beside them; tensors that the checkpoint holds of the frozen parts must be the pretrained ones.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.source_digests import named_path
from tallmasks.tasks.titles import TITLES

if TYPE_CHECKING:
    import torch

FINETUNE = "finetune"
FOLDER_SUFFIXES = (".safetensors", ".pt")
_SAME = 1e-3  # how far a frozen tensor may be from the pretrained one, per value: half-precision copies are nearer


@dataclass(frozen=True)
class Source:
    """Where somebody publishes fine-tuned CLIP image encoders on the hub.

    Attributes:
        models: their name of each open_clip architecture (without "-quickgelu").
        tasks: their name of each task.
        repository: the hub repository of a model and a task, by their names.
        file: the file in it.
        revision: the commit that is taken where none is named.
        generation: of what checkpoints these are, for people.
    """

    models: Mapping[str, str]
    tasks: Mapping[str, str]
    repository: Callable[[str, str], str]
    file: Callable[[str, str], str]
    revision: str = "main"
    generation: str = ""


SOURCES = {
    "published": Source(  # by the paper's authors
        models={"ViT-B-32": "ViT-B-32", "ViT-B-16": "VIT-B-16", "ViT-L-14": "ViT-L-14"},  # as they spell them
        tasks=TITLES,
        repository=lambda model, task: "nik-dim/tall_masks",
        file=lambda model, task: f"single_task/{model}/{task}Val/nonlinear_finetuned.pt",
        # main as it was half a year after its last change ("updated zeroshot"), by the hub's own page of its files,
        # which gives this much of the hash
        revision="c8d352f",
        generation="the second, which the authors put in the paper's place by December 2024 (DTD fine-tuned anew)",
    ),
    "fusionbench": Source(  # of Tang et al. 2024; their EMNIST is the letters split, another task than the paper's
        models={
            "ViT-B-32": "clip-vit-base-patch32",
            "ViT-B-16": "clip-vit-base-patch16",
            "ViT-L-14": "clip-vit-large-patch14",
        },
        tasks={name: name for name in TITLES if name != "emnist"}
        | {
            "cars": "stanford-cars",
            "flowers102": "oxford_flowers102",
            "oxfordiiitpet": "oxford-iiit-pet",
            "fashionmnist": "fashion_mnist",
            "renderedsst2": "rendered-sst2",
        },
        repository=lambda model, task: f"tanganke/{model}_{task}",
        file=lambda model, task: "model.safetensors",
    ),
}


@dataclass(frozen=True)
class Imported:
    """Where one task's checkpoint comes from: from the hub (`repository`, `file`, `revision`) or from `local`."""

    source: str
    repository: str | None = None
    file: str | None = None
    revision: str | None = None
    local: Path | None = None

    @property
    def recipe(self) -> dict[str, str]:
        """What decides the content, for the artifact's recipe; a local file's sha256 comes beside it."""
        if self.local is not None:
            return {"source": self.source}
        assert self.repository and self.file and self.revision
        return {
            "source": self.source,
            "repository": self.repository,
            "file": self.file,
            "revision": self.revision,
        }


def source_of(checkpoints: Any, task: str) -> str:
    """What `checkpoints` in params.yaml says of a task: ``finetune``, a name of `SOURCES`, or a folder."""
    if isinstance(checkpoints, str):
        return checkpoints
    return str(checkpoints.get("tasks", {}).get(task, checkpoints["source"]))


def seen_validation(origins: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What to know of a choice made on validation data with checkpoints that others fine-tuned; None where all were
    fine-tuned here.

    Args:
        origins: by task, where its ``checkpoint`` is from, as the artifacts know it; of one that was fine-tuned here,
            where its examples are from.
    """
    sources: dict[str, list[str]] = {}
    for task, origin in origins.items():
        if source := origin.get("checkpoint", {}).get("source"):
            sources.setdefault(source, []).append(task)
    said = [
        f"those of {source} ({', '.join(tasks)}) "
        + ("were fine-tuned on most of these images" if source in SOURCES else "may have seen these images")
        for source, tasks in sources.items()
    ]
    if not said:
        return None
    return (
        "alpha and lambda are chosen on this project's validation images, and of the imported checkpoints "
        + "; ".join(said)
    )


def locate(checkpoints: Any, architecture: Any, task: str, root: Path = Path()) -> Imported | None:
    """Where the checkpoint of a task comes from; None if it is fine-tuned here.  Looks at file names at most.

    Args:
        checkpoints: the value of that key in params.yaml.
        architecture: the model's, an open_clip name or configuration.
        task: a task's name.
        root: what relative paths are relative to.

    Raises:
        TallmasksError: the source has no checkpoint of this model or task, or the folder has none.
    """
    settings: Mapping[str, Any] = {"source": checkpoints} if isinstance(checkpoints, str) else checkpoints
    source = source_of(checkpoints, task)
    if source == FINETUNE:
        return None
    if source not in SOURCES:
        return Imported("folder", local=_in_folder(named_path(root, source), source, task))
    known = SOURCES[source]
    name = str(architecture).removesuffix("-quickgelu")
    for what, found, names in (("model", name, known.models), ("task", task, known.tasks)):
        if found not in names:
            raise TallmasksError(
                f"params.yaml: checkpoints: {source} has no {what} {found!r}{nearest(found, names)}; it has "
                f"{', '.join(names)}. Set `checkpoints: {FINETUNE}`, or another source for this task under "
                "`checkpoints.tasks`"
            )
    revision = settings.get("revision", known.revision) if source == settings["source"] else known.revision
    names_there = known.models[name], known.tasks[task]
    repository, file = known.repository(*names_there), known.file(*names_there)
    if "path" in settings:
        folder = named_path(root, settings["path"])
        places = [folder / file, folder / repository / file, folder / repository.split("/")[-1] / file]
        local = next((place for place in places if place.is_file()), None)
        if local is None:
            raise TallmasksError(f"{places[0]} is not there, and neither is {places[1]}; checkpoints.path names it")
        return Imported(source, local=local)
    return Imported(source, repository, file, revision)


def _in_folder(folder: Path, written: str, task: str) -> Path:
    files = [folder / f"{task}{suffix}" for suffix in FOLDER_SUFFIXES]
    for file in files:
        if file.is_file():
            return file
    hint = "" if folder.is_dir() else nearest(written, (FINETUNE, *SOURCES))
    raise TallmasksError(
        f"params.yaml: checkpoints: neither {files[0]} nor {files[1].name} is there{hint}; expected {FINETUNE}, "
        f"{', '.join(SOURCES)}, or a folder with one file per task"
    )


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint file, by name; nothing in the file is ever executed.

    Raises:
        TallmasksError: the file is damaged, holds pickled code instead of a state dict, or something else.
    """
    import pickle

    import torch
    from safetensors.torch import load_file

    check_file(path)
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise TallmasksError(
            f"{path}: it holds more than tensors by name (a pickled model, say), and code in files is not run. Where "
            "you trust it, load it yourself and save its `state_dict()` with torch.save or safetensors"
        ) from None
    except Exception as error:  # the readers raise anything on a file that was cut or changed
        raise TallmasksError(
            f"{path}: not a whole checkpoint file ({_one_line(error)}). Copy or download it again"
        ) from None
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping):
        raise TallmasksError(f"{path}: found a {type(state).__name__}, expected a state dict: tensors by name")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            found = "is no name" if not isinstance(name, str) else f"is a {type(tensor).__name__}"
            raise TallmasksError(
                f"{path}: {_short(name)} {found}; expected a state dict: tensors by name, nothing else"
            )
    return dict(state)


def check_file(path: Path) -> None:
    """Refuse what can be told from outside not to be a file of tensors, and would hang or fill the memory.

    Raises:
        TallmasksError: there is no such file, it is no plain file, or an archive that unpacks to more than it is.
    """
    if not path.is_file():
        problem = "not a plain file" if path.exists() else "no such file"
        raise TallmasksError(f"{path}: {problem}; expected a file of tensors, .safetensors or as torch.save writes it")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except Exception:  # no archive, or a damaged one: for its own reader to judge
        return
    if unpacked > path.stat().st_size:
        raise TallmasksError(
            f"{path}: an archive of {path.stat().st_size} bytes that unpacks to {unpacked}; torch.save compresses "
            "nothing: expected a file that it wrote"
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def convert(
    state: Mapping[str, torch.Tensor], pretrained: Mapping[str, torch.Tensor], trainable: str, path: Path
) -> dict[str, torch.Tensor]:
    """The trainable tensors of a checkpoint under open_clip's names, float32.

    Args:
        state: the checkpoint's tensors, as `read_state` gives them.
        pretrained: the model's pretrained tensors.
        trainable: the prefix of the tensors that a checkpoint of this project holds, "visual.".
        path: where the checkpoint comes from, for error messages.

    Raises:
        TallmasksError: a tensor is missing, unknown, there twice, of another shape, no plain tensor of floats, or not
            finite in float32; or a frozen one differs from the pretrained one.
    """
    import torch

    for name, tensor in state.items():
        if odd := oddness(tensor):
            raise TallmasksError(
                f"{path}: tensor {_short(name)} is {odd}; expected plain values: save a plain copy of it"
            )
    found = matched(state, pretrained, trainable, path)
    converted = {name: tensor.detach().resolve_neg().float().contiguous() for name, tensor in found.items()}
    for name, tensor in converted.items():
        if not torch.isfinite(tensor).all():
            raise TallmasksError(
                f"{path}: tensor {name!r} holds NaN, infinity, or values beyond float32; expected finite numbers: the "
                "training diverged, or the file is damaged"
            )
        if name.startswith(trainable):
            if not torch.isfinite(tensor - pretrained[name].float()).all():
                raise TallmasksError(
                    f"{path}: tensor {name!r} holds values too large to subtract the pretrained ones in float32; "
                    "expected a fine-tuned checkpoint: the training diverged, or the file is damaged"
                )
        elif not torch.allclose(tensor, pretrained[name].float(), rtol=0, atol=_SAME):
            raise TallmasksError(
                f"{path}: the frozen tensor {name!r} is not the pretrained one, so this was fine-tuned from other "
                "weights; a task vector would mean nothing. Set `pretrained` to what it was fine-tuned from"
            )
    return {name: converted[name] for name in sorted(converted) if name.startswith(trainable)}


def oddness(tensor: torch.Tensor) -> str | None:
    """What keeps a tensor from being an array of values in memory, if anything does."""
    import torch

    if tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else str(tensor.layout)
        return f"of a special kind ({kind})"
    if tensor.device.type != "cpu":
        return f"without values (on the device {tensor.device})"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"a view of {tensor.numel()} values on {tensor.untyped_storage().nbytes()} bytes"
    return None


def float_types() -> tuple[torch.dtype, ...]:
    """The types that weights are stored in."""
    import torch

    return torch.float16, torch.bfloat16, torch.float32, torch.float64


def matched(
    state: Mapping[str, torch.Tensor], pretrained: Mapping[str, torch.Tensor], trainable: str, path: Path
) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors under open_clip's names: every trainable one, those of frozen parts that it has, and each
    with the shape of the pretrained one.  As `convert`, but looks at no value."""
    names = {name for name in pretrained if name.startswith(trainable)}
    if any("embeddings.class_embedding" in name for name in state):
        renamed = {name.removeprefix("vision_model."): tensor for name, tensor in state.items()}
        found = from_transformers(renamed, trainable)
        found.setdefault(f"{trainable}proj", pretrained[f"{trainable}proj"])  # CLIPVisionModel ends before it
    else:
        renamed = found = _without_prefix(state, names)
    if len(renamed) < len(state):
        raise TallmasksError(
            f"{path}: it holds {len(state) - len(renamed)} of its tensors twice, with and without a prefix; expected "
            "one tensor for each name"
        )
    for problem, some in (("missing", names - found.keys()), ("unknown", found.keys() - pretrained.keys())):
        if some:
            raise TallmasksError(
                f"{path}: tensor {_short(min(some))} ({len(some)} in all) is {problem}; expected a checkpoint of the "
                "model's own architecture, with open_clip's or transformers' names"
            )
    for name, tensor in found.items():
        if tensor.shape != pretrained[name].shape or tensor.dtype not in float_types():
            raise TallmasksError(
                f"{path}: tensor {name!r} is {list(tensor.shape)} of {tensor.dtype}, expected "
                f"{list(pretrained[name].shape)} of floats: a checkpoint of the model's own architecture"
            )
    return found


def _without_prefix(state: Mapping[str, torch.Tensor], names: set[str]) -> dict[str, torch.Tensor]:
    """`state` without what stands before open_clip's names, as ``model.`` or ``module.image_encoder.model.``."""
    some = min(names)
    prefix = next((name.removesuffix(some) for name in sorted(state) if name.endswith(some)), "")
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


_TRANSFORMERS = (  # a pattern of transformers' CLIPVisionModel, open_clip's name
    (r"embeddings\.class_embedding", r"class_embedding"),
    (r"embeddings\.patch_embedding\.weight", r"conv1.weight"),
    (r"embeddings\.position_embedding\.weight", r"positional_embedding"),
    (r"pre_layrnorm\.(\w+)", r"ln_pre.\1"),
    (r"post_layernorm\.(\w+)", r"ln_post.\1"),
    (r"encoder\.layers\.(\d+)\.layer_norm([12])\.(\w+)", r"transformer.resblocks.\1.ln_\2.\3"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc1\.(\w+)", r"transformer.resblocks.\1.mlp.c_fc.\2"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc2\.(\w+)", r"transformer.resblocks.\1.mlp.c_proj.\2"),
    (r"encoder\.layers\.(\d+)\.self_attn\.out_proj\.(\w+)", r"transformer.resblocks.\1.attn.out_proj.\2"),
    (r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"transformer.resblocks.\1.attn.in_proj_\3/\2"),
    (r"visual_projection\.weight", r"proj/transposed"),
)


def from_transformers(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Tensors of transformers' CLIPVisionModel, or of CLIPVisionModelWithProjection, under open_clip's names.

    Queries, keys and values are one matrix in open_clip.  Names that are not of such a model stay as they are.
    """
    import torch

    found: dict[str, torch.Tensor] = {}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for full_name, tensor in state.items():
        name = full_name.removeprefix("vision_model.")
        if name == "embeddings.position_ids":  # a counter that older releases stored
            continue
        ours = next((re.sub(f"^{old}$", new, name) for old, new in _TRANSFORMERS if re.fullmatch(old, name)), None)
        if ours is None:
            found[full_name] = tensor
        elif ours.endswith("/transposed"):
            found[prefix + ours.removesuffix("/transposed")] = tensor.T if tensor.ndim == 2 else tensor
        elif "/" in ours:
            joined, part = ours.split("/")
            parts.setdefault(prefix + joined, {})[part] = tensor
        else:
            found[prefix + ours] = tensor
    for name, pieces in parts.items():
        if len(pieces) == 3:  # else it stays missing, and the caller says so
            some = [pieces[part] for part in "qkv"]
            odd = [piece for piece in some if piece.shape != some[0].shape or piece.dtype not in float_types()]
            found[name] = odd[0] if odd else torch.cat(some)  # as for one whose shape the caller refuses
    return found
