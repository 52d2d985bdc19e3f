"""Write the difference of two models as a PEFT LoRA folder: products B A for the matrices of layers, and whole heads
(`modules_to_save`). transformers says which module has a tensor. PEFT and vLLM add B A where a module is called, so
there is none for vectors, convolutions, tied tensors, and embeddings of positions, which some models add as weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import OptionError, TallmasksError, name_some
from tallmasks.io.dtypes import code_of
from tallmasks.io.tensor_files import TensorInfo, bytes_in_order, new_tensor_file
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.known_tensors import KnownTensor, known_tensors, library_advice
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES, PREFIX, LoraCheckpoint
from tallmasks.vectors.low_rank import Matrix, squared_norm, truncated_svd

# These models read the weights without calling the layers; PEFT refuses the layers, or adds B A without an effect.
_MAMBAS = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h")
_NOT_CALLED = ("conv1d", "dt_proj", "out_proj")
_METADATA = {"format": "pt"}


@dataclass(frozen=True)
class Difference:
    """What an adapter adds to a base.

    Attributes:
        base_name: the path or repository of the base, for PEFT.
        names: the base's float tensors that differ.
        read: the difference theta - theta_0 of one of them, float32 in its shape.
        model: the model of the class that the adapter is for, such as the base; the owner of ``own``.
        own: its tensors that the base lacks or has in another shape.
        factors: left [rows, r] and right [r, columns], whose product is the difference of a tensor, if they are known.
        loras: the LoRAs that it was made from.
    """

    base: Checkpoint
    base_name: str
    names: Sequence[str]
    read: Callable[[str], NDArray[np.float32]]
    model: Checkpoint
    own: Collection[str] = ()
    factors: Callable[[str], tuple[Matrix, Matrix] | None] = lambda name: None
    loras: Sequence[LoraCheckpoint] = ()

    def owner(self, name: str) -> Checkpoint:
        return self.model if name in self.own else self.base


@dataclass(frozen=True)
class Adapter:
    """An adapter to write: a product for each tensor in ``low_rank``, exact with its ``factors``; the tensors in
    ``whole``; and nothing for the ``lost`` ones. Products of a lower ``rank`` get zeros, as vLLM has one rank for all.
    ``targets``: PEFT's `target_modules`."""

    difference: Difference
    dtype: str
    low_rank: Mapping[str, KnownTensor]
    factors: Mapping[str, tuple[Matrix, Matrix]]
    whole: Mapping[str, KnownTensor]
    lost: Sequence[str]
    rank: int
    targets: Sequence[str]

    @cached_property
    def modules_to_save(self) -> list[str]:
        return sorted({one.module for one in self.whole.values()})

    @cached_property
    def infos(self) -> dict[str, TensorInfo]:
        """The tensors of the file."""
        owner = self.difference.owner
        shapes = {PREFIX + one.identity: owner(name).info(name).shape for name, one in self.whole.items()}
        for name, one in self.low_rank.items():
            outputs, inputs = self.difference.base.info(name).shape[:: 1 if one.layer == "Linear" else -1]
            shapes |= zip(_keys(one), ((self.rank, inputs), (outputs, self.rank)), strict=True)
        return {key: TensorInfo(self.dtype, shape) for key, shape in sorted(shapes.items())}

    @property
    def nbytes(self) -> int:
        return bytes_in_order(self.infos, _METADATA)

    def write(self, folder: Path) -> tuple[dict[str, float], float, dict[str, float]]:
        """Write the files into ``folder``, with one difference in memory at a time.

        Returns the kept share of the squared norm of each matrix, that of all tensors that are not ``whole``, and the
        shares of the ``lost`` ones in the latter. Raises TallmasksError if a value is not finite in the dtype.
        """
        kept, norms = dict[str, float](), dict[str, float]()
        with new_tensor_file(folder / ADAPTER_FILES[0], self.infos, _METADATA) as new:
            for name, one in self.low_rank.items():
                update = self._read(name)
                left, right = self.factors.get(name, (update[:, :0], update[:0]))
                norms[name] = kept[name] = squared_norm(update)
                if name not in self.factors:
                    left, right, kept[name] = truncated_svd(update, self.rank)
                more = (0, self.rank - left.shape[1])
                left, right = np.pad(left, ((0, 0), more)), np.pad(right, (more, (0, 0)))
                a, b = (right, left) if one.layer == "Linear" else (left.T, right.T)
                for key, values in zip(_keys(one), (a, b), strict=True):
                    new.raw[key][:] = narrowed(values, self.dtype, f"the LoRA: tensor {key}")
            for name, one in self.whole.items():
                values = self.difference.owner(name).float32(name)
                values = values + self._read(name) if name in self.difference.names else values
                new.raw[PREFIX + one.identity][:] = narrowed(values, self.dtype, f"the LoRA: tensor {name}")
        config = {
            "peft_type": "LORA",
            "base_model_name_or_path": self.difference.base_name,
            "revision": self.difference.base.origin.get("revision"),
            "r": self.rank,
            "lora_alpha": self.rank,  # the scale is 1
            "target_modules": self.targets,
            "modules_to_save": self.modules_to_save or None,
            "fan_in_fan_out": any(one.layer == "Conv1D" for one in self.low_rank.values()),
        }
        (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        lost = {name: squared_norm(self._read(name)) for name in self.lost}
        total = sum(norms.values()) + sum(lost.values()) or 1.0
        shares = {name: min(kept[name] / norm, 1.0) for name, norm in norms.items() if norm}
        return shares, min(sum(kept.values()) / total, 1.0), {name: norm / total for name, norm in lost.items()}

    def _read(self, name: str) -> NDArray[np.float32]:
        update = self.difference.read(name)
        narrowed(update, "F32", f"the change of {name}")  # refuses NaN and infinity
        return update


def planned_adapter(difference: Difference, rank: int, dtype: str | None = None) -> Adapter:
    """Plan an adapter of at most this ``rank``. ``dtype``: of its tensors (default: float32).

    Raises OptionError for a rank below 1 or a base that transformers does not know, and TallmasksError if the matrix of
    no layer differs, or PEFT cannot store one of ``own``.
    """
    base, model, own = difference.base, difference.model, difference.own
    if rank < 1:
        raise OptionError(f"as_lora: found the rank {rank}, expected at least 1")
    can_be_loaded = "repository" in base.origin or Path(base.origin.get("path", "")).is_dir()
    if not (known := known_tensors({*base.names, *model.names}, model, base) if can_be_loaded else {}):
        raise OptionError(
            f"as_lora: found the base {base.title}; expected a folder or repository of a transformers model, because"
            f" PEFT needs the class in its config.json{library_advice(base)}. Leave out as_lora to write a whole model"
        )
    stored = base.names | {*own}
    untied = {name: one for name, one in known.items() if one.layer and not one.is_tied and name in stored}
    changed = {name: untied[name] for name in (*own, *difference.names) if name in untied}
    replaced = {name for one in difference.loras for name in one.replaced if name.endswith(".weight")}
    modules = {one.module for name, one in changed.items() if name in own or one.role == "head" or name in replaced}

    def is_taken(module: str) -> bool:
        """PEFT compares the ends of names, and adds no B A below a module that it stores whole."""
        return any(module.endswith(one) or f".{one}." in f".{module}" for one in modules)

    modules |= {one.module for one in changed.values() if is_taken(one.module)}
    whole = {name: one for name, one in untied.items() if one.module in modules}
    whole = {name: one for name, one in whole.items() if difference.owner(name).info(name).is_float}
    if lacking := [name for name in own if name not in whole]:
        raise TallmasksError(
            f"as_lora: found {name_some(lacking)}, tied or no layer's, and not in this shape in {base.title}; expected"
            " tensors of layers that are not tied, because PEFT cannot store others. Leave out as_lora to write a whole"
            " model"
        )
    tables = {name for name, one in known.items() if one.vocabulary_key}
    tables |= {name for one in difference.loras for name in one.products}
    refused = _NOT_CALLED if model.config.get("model_type") in _MAMBAS else ()

    def is_low_rank(name: str, one: KnownTensor) -> bool:
        can_be = one.layer in ("Linear", "Conv1D") or (one.layer == "Embedding" and name in tables)
        return can_be and name not in whole and one.module.rpartition(".")[2] not in refused

    low_rank = {name: one for name, one in changed.items() if is_low_rank(name, one)}
    if not low_rank:
        ordered = sorted([*own, *difference.names], key=whole.__contains__)
        raise TallmasksError(
            f"as_lora: found changes of {name_some(ordered)}, but of no matrix of a linear layer, heads aside; expected"
            " one, because only these can have a LoRA. Leave out as_lora to write a whole model"
        )
    found = {name: pair for name in low_rank if (pair := difference.factors(name))}
    factors = {name: pair for name, pair in found.items() if pair[0].shape[1] <= rank}
    ranks = [factors[name][0].shape[1] if name in factors else min(rank, *base.info(name).shape) for name in low_rank]
    lost = [name for name in difference.names if name not in low_rank and name not in whole]
    targets = _targets({one.module for one in low_rank.values()}, {one.identity for one in known.values()})
    return Adapter(difference, code_of(dtype or "float32"), low_rank, factors, whole, lost, max(ranks), targets)


def _keys(one: KnownTensor) -> tuple[str, str]:
    """PEFT's names of A and B."""
    form = "lora_embedding_{}" if one.layer == "Embedding" else "lora_{}.weight"
    return f"{PREFIX}{one.module}.{form.format('A')}", f"{PREFIX}{one.module}.{form.format('B')}"


def _targets(modules: Collection[str], tensors: Collection[str]) -> list[str]:
    """The last parts of the modules' names; whole names if another module has the same last part."""
    every = {name[:end] for name in tensors for end, character in enumerate(name) if character == "."}
    others = {name.rpartition(".")[2] for name in every - {*modules}}
    return sorted({name if (last := name.rpartition(".")[2]) in others else last for name in modules})
