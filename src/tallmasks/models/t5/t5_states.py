"""T5 weights as others save them, under the names of the hub's files: pretrained, fine-tuned, and (IA)^3's vectors.

What is read is a file of safetensors or of torch.save's (never more of it than tensors), a folder as transformers saves
it, and for (IA)^3 a folder as PEFT saves it.  A prefix before every name (``transformer.``, ``model.``) is taken off.
`embed_tokens` of encoder and decoder must be the table `shared` again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.models.foreign_weights import SAME, check_names, finite_values, without_prefix
from tallmasks.models.t5.t5_architectures import FROZEN, IA3_SUFFIX, PEFT_PREFIX, TABLES, Architecture, Shapes
from tallmasks.models.t5.text_tokenizer import TENSOR, tokenizer_beside
from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import read_json
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.lora import ADAPTER_CONFIG, ADAPTER_FILES
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.weight_files import open_weight_files

State = dict[str, NDArray[np.float32]]

_REPEATED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""In old files; no T5 looks at it."""
_OLD_IA3 = re.compile(r"(?P<module>.+)\.ia3_layer\.ia3_vector")
_CONFIGURED = ("num_heads", "feed_forward_proj", "layer_norm_epsilon", "relative_attention_max_distance")
"""What no tensor's shape tells."""


def pretrained_state(architecture: Architecture, weights: Path) -> dict[str, NDArray[Any]]:
    """What a pretrained file holds: every tensor, float32, and the tokenizer that lies beside the weights.

    Raises:
        TallmasksError: a file is damaged or missing, or its tensors are not the architecture's.
    """
    if weights.is_dir():
        _check_config(architecture, weights / "config.json")
    found = _whole(open_checkpoint(weights), architecture.shapes, architecture.shapes)
    return {**found, TENSOR: tokenizer_beside(weights)}


def fine_tuned_state(architecture: Architecture, path: Path, pretrained: Path) -> State:
    """The trainable tensors of a whole model that somebody else fine-tuned.

    Raises:
        TallmasksError: a file is damaged or missing, its tensors are not the architecture's, or it moved the table that
            is frozen here.
    """
    trainable, initial = architecture.trainable(), open_checkpoint(pretrained)
    found = _whole(open_checkpoint(path), trainable, architecture.shapes)
    for name in FROZEN[architecture.frozen_table]:
        if name in found and (most := float(np.abs(found.pop(name) - initial.float32(name)).max())) > SAME:
            other = "lm_head" if name == TABLES[0] else "shared"
            raise TallmasksError(
                f"{path}: the frozen table {name!r} is up to {most:.3g} from the pretrained one; expected the "
                f"same. If it was fine-tuned, set `frozen_table` under `architecture` to {other} or none; if it "
                "was fine-tuned from other weights, set `pretrained` to those"
            )
    return found


def _whole(checkpoint: Checkpoint, wanted: Shapes, known: Shapes) -> State:
    """Tensors of a whole model, float32: all that are wanted, and those that are known beside them."""
    names = without_prefix(checkpoint, "encoder.final_layer_norm.weight")
    for name in _REPEATED:
        if name in names and TABLES[0] in names and not _equal(checkpoint, names.pop(name), names[TABLES[0]]):
            raise TallmasksError(
                f"{checkpoint.title}: {name!r} is not {TABLES[0]!r}; expected one table under both names, as T5 has it"
            )
    names.pop(_UNUSED, None)
    hint = "a T5 v1.1 of the architecture in params.yaml, with transformers' names"
    if TABLES[1] not in names and TABLES[1] in wanted:
        raise TallmasksError(
            f"{checkpoint.title}: no tensor {TABLES[1]!r}: it was saved with its two tables tied, and the second one "
            f"is lost; expected {hint}. Save its state dict with both"
        )
    check_names(checkpoint, names, wanted, known, hint)
    return {name: _array(checkpoint, names[name], known[name]) for name in sorted(names)}


def _array(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One tensor, float32 in a shape that it need not have itself, with finite values."""
    info = checkpoint.info(name)
    loose = len([length for length in info.shape if length > 1]) == len([length for length in shape if length > 1]) == 1
    if not info.is_float or (info.shape != shape and not (loose and max(info.shape) == max(shape))):
        raise TallmasksError(
            f"{checkpoint.title}: tensor {name!r} is {list(info.shape)} of {info.dtype}, expected {list(shape)} of "
            "floats"
        )
    return finite_values(checkpoint, name).reshape(shape)


def _equal(checkpoint: Checkpoint, one: str, other: str) -> bool:
    first, second = (checkpoint.info(name) for name in (one, other))
    return first == second and np.array_equal(
        checkpoint.stored(one, 0, first.size), checkpoint.stored(other, 0, second.size)
    )


def _check_config(architecture: Architecture, path: Path) -> None:
    """Refuse a folder whose configuration says that the network computes something else with the same tensors."""
    if not path.is_file():
        return
    found = _json(path)
    for key in _CONFIGURED:
        expected = getattr(architecture, key)
        if found.get(key, expected) != expected:
            raise TallmasksError(
                f"{path}: {key}: found {found[key]!r}, and `architecture` in params.yaml has {expected!r}; they must "
                "belong together"
            )


# -- (IA)^3 ---------------------------------------------------------------------------------------------------


def ia3_state(architecture: Architecture, path: Path) -> State:
    """(IA)^3's vectors that somebody else fine-tuned, under PEFT's names.

    In files of before PEFT the vector of the feed-forward rescales what comes out of `wi_1`, which is what goes into
    `wo` but for a factor: the same vector.

    Raises:
        TallmasksError: a file is damaged or missing, or its vectors are not the architecture's.
    """
    wanted = architecture.trainable("ia3")
    checkpoint = _adapter(path)
    renamed = {_peft_name(name): name for name in checkpoint.names}
    if len(renamed) < len(checkpoint.names):
        raise TallmasksError(f"{checkpoint.title}: a vector is there twice, in two layouts; expected each once")
    hint = "the (IA)^3 vectors of k, v and the feed-forward, in PEFT's layout"
    check_names(checkpoint, renamed, wanted, wanted, hint)
    return {name: _array(checkpoint, renamed[name], wanted[name]) for name in sorted(renamed)}


def _adapter(path: Path) -> Checkpoint:
    if not path.is_dir():
        return open_checkpoint(path)
    config = _json(path / ADAPTER_CONFIG) if (path / ADAPTER_CONFIG).exists() else {"peft_type": None}
    if config.get("peft_type") != "IA3" or config.get("modules_to_save"):
        raise TallmasksError(
            f"{path}: expected a folder as PEFT saves (IA)^3, with {ADAPTER_CONFIG}, peft_type IA3 and nothing in "
            f"modules_to_save; found peft_type {config.get('peft_type')!r}"
        )
    for name in ADAPTER_FILES:
        if (path / name).exists():
            return open_weight_files({name: path / name}, title=str(path / name), origin={"path": str(path)})
    raise TallmasksError(f"{path}: no {ADAPTER_FILES[0]} beside {ADAPTER_CONFIG}; copy it there")


def _peft_name(name: str) -> str:
    """PEFT's name of a vector; of anything else its own."""
    old = _OLD_IA3.fullmatch(name)
    module = old["module"].removeprefix("transformer.") if old else name.removesuffix(IA3_SUFFIX)
    if not old and not name.endswith(IA3_SUFFIX):
        return name
    module = re.sub(r"\.wi_1$", ".wo", module) if old else module
    return PEFT_PREFIX + module.removeprefix(PEFT_PREFIX) + IA3_SUFFIX


def _json(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TallmasksError(f"{path}: not a JSON object; expected a configuration as it was saved. Copy it again")
    return found
