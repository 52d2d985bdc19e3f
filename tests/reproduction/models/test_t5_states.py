"""Reading T5 weights: pretrained, fine-tuned and (IA)^3 checkpoints in every layout, tokenizers, and refused files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from reproduction.models.language.text_tokenizer import TextTokenizer
from reproduction.models.t5 import FAMILY
from reproduction.models.t5.t5_architectures import Architecture
from reproduction.models.t5.t5_states import json_of_spiece
from small_t5 import ARCHITECTURE, SPEC, plain_network, random_state, save_small, spiece_model, tokenizer_json
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors

IA3: dict[str, Any] = {**SPEC, "adapter": "ia3"}
State = dict[str, np.ndarray]


def torch_state(state: State) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in state.items()}


def finetuned(state: State, seed: int = 1) -> State:
    """Adds small random changes to every tensor except `shared.weight`."""
    draw = np.random.default_rng(seed)
    moved = {n: a + draw.normal(0, 0.01, a.shape).astype(np.float32) for n, a in state.items()}
    return moved | {"shared.weight": state["shared.weight"]}


@pytest.fixture
def pretrained(tmp_path: Path) -> tuple[Path, State]:
    """A pretrained file, and its tensors without the tokenizer."""
    state = save_small(tmp_path / "pretrained.safetensors")
    state.pop("tokenizer.json")
    return tmp_path / "pretrained.safetensors", state


def saved_folder(folder: Path, state: State, save: Callable[[Path], None] | None = None) -> Path:
    """A folder in transformers' layout; `save` writes the weights if given."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**ARCHITECTURE, "feed_forward_proj": "gated-gelu"}))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    if save is None:
        save_file(torch_state(state), folder / "model.safetensors")
    else:
        save(folder)
    return folder


def with_embed_tokens(state: State) -> dict[str, torch.Tensor]:
    """The layout of the hub's pytorch_model.bin: the input table under three names that share memory."""
    tensors = torch_state(state)
    return tensors | dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), tensors["shared.weight"]
    )


@pytest.mark.parametrize("layout", ["bin", "transformers"])
def test_pretrained_weights_are_read_in_every_layout(layout: str, tmp_path: Path) -> None:
    """Models from transformers or the hub could not be used, or would lose an embedding table."""
    state = random_state()
    saves: dict[str, Callable[[Path], None]] = {
        "bin": lambda folder: torch.save(with_embed_tokens(state), folder / "pytorch_model.bin"),
        "transformers": lambda folder: plain_network(state).save_pretrained(folder),
    }
    folder = saved_folder(tmp_path / "saved", state, saves[layout])
    found = FAMILY.convert_pretrained(SPEC, folder)
    assert bytes(found.pop("tokenizer.json")).decode() == tokenizer_json()
    assert sorted(found) == sorted(state)
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name, strict=True)


@pytest.mark.parametrize(
    ("config", "said"),
    [({"num_heads": 2}, "num_heads: .*2.* 4"), ({"tie_word_embeddings": True}, "scales its outputs")],
)
def test_another_network_is_refused(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    """A different network from the intended one would be fine-tuned."""
    folder = saved_folder(tmp_path / "saved", random_state())
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(TallmasksError, match=said):
        FAMILY.convert_pretrained(SPEC, folder)


PIECES = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2), ("▁", -3.0, 1), ("▁cat", -2.0, 1), ("▁cats", -4.0, 1),
          ("s", -2.5, 1), ("▁red", -2.0, 1)]  # fmt: skip


def test_a_sentencepiece_model_becomes_a_tokenizer(tmp_path: Path) -> None:
    """T5 models without a tokenizer.json on the hub could not be used."""
    (tmp_path / "spiece.model").write_bytes(spiece_model(PIECES))
    tokenizer = TextTokenizer(json_of_spiece(tmp_path / "spiece.model"), tmp_path, 108)
    assert tokenizer(["red cats", " red  cat ", "dog"]) == [[7, 5, 1], [7, 4, 1], [3, 2, 1]]
    assert (tokenizer.pad, tokenizer.end) == (0, 1)
    assert tokenizer(["<extra_id_0> cat <extra_id_99>"]) == [[107, 4, 8, 1]], "sentinels stand behind the pieces"
    assert tokenizer(["red red red red"], 3) == [[7, 7, 1]] and tokenizer.text([7, 5]) == "red cats"


@pytest.mark.parametrize("layout", ["folder", "transformer."])
def test_fine_tuned_models_are_read_in_every_layout(
    layout: str, pretrained: tuple[Path, State], tmp_path: Path
) -> None:
    """Published T5 checkpoints could not be merged."""
    path, state = pretrained
    tuned = finetuned(state)
    file = tmp_path / "tuned.pt"
    if layout == "folder":
        file = saved_folder(tmp_path / "tuned", tuned)
    else:  # with the input table under all of its names
        torch.save({f"transformer.{name}": tensor for name, tensor in with_embed_tokens(tuned).items()}, file)
    found = FAMILY.convert_checkpoint(SPEC, file, path)
    assert list(found) == list(Architecture.of(ARCHITECTURE).trainable())
    for name, array in found.items():
        np.testing.assert_array_equal(array, tuned[name], err_msg=name)


def some_vectors() -> State:
    draw = np.random.default_rng(3)
    shapes = Architecture.of(ARCHITECTURE).trainable("ia3")
    return {name: draw.normal(1, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def save_as_peft(folder: Path, vectors: State) -> None:
    folder.mkdir()
    config = {
        "base_model_name_or_path": "google/t5-large-lm-adapt", "feedforward_modules": ["wo"], "init_ia3_weights": True,
        "modules_to_save": None, "peft_type": "IA3", "target_modules": ["k", "v", "wo"], "task_type": "SEQ_2_SEQ_LM",
    }  # fmt: skip
    write_tensors(folder / "adapter_model.safetensors", vectors, {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("layout", ["own", "peft", "peft bin"])
def test_ia3_is_read_in_every_layout(layout: str, pretrained: tuple[Path, State], tmp_path: Path) -> None:
    """Vectors that others trained could not be merged, or would be applied to the wrong matrix."""
    vectors = some_vectors()
    if layout == "own":
        file = tmp_path / "vectors.safetensors"
        write_tensors(file, vectors, {})
    else:
        file = tmp_path / "vectors"
        save_as_peft(file, vectors)
        if layout == "peft bin":
            (file / "adapter_model.safetensors").unlink()
            torch.save(torch_state(vectors), file / "adapter_model.bin")
    found = FAMILY.convert_checkpoint(IA3, file, pretrained[0])
    assert {n: (a.shape, a.tobytes()) for n, a in found.items()} == {
        n: (a.shape, a.tobytes()) for n, a in vectors.items()
    }


def test_pefts_names_are_pefts() -> None:
    """PEFT would load none of a checkpoint's vectors, and report that only as a warning."""
    shapes = Architecture.of(ARCHITECTURE).trainable("ia3")
    stem = "base_model.model.decoder.block.1.layer"
    assert shapes[f"{stem}.1.EncDecAttention.v.ia3_l"] == (32, 1)
    assert shapes[f"{stem}.2.DenseReluDense.wo.ia3_l"] == (1, 48)
    assert len(shapes) == 2 * (3 + 5)


def test_other_adapters_are_refused(pretrained: tuple[Path, State], tmp_path: Path) -> None:
    """A missing vector would silently stay at one, and the task vector would be wrong."""
    vectors = some_vectors()
    vectors.pop(min(vectors))
    save_as_peft(tmp_path / "out", vectors)
    with pytest.raises(TallmasksError, match=r"adapter_model\.safetensors.*SelfAttention\.k\.ia3_l"):
        FAMILY.convert_checkpoint(IA3, tmp_path / "out", pretrained[0])
    config = tmp_path / "out" / "adapter_config.json"
    config.write_text(config.read_text().replace("IA3", "LORA"))
    with pytest.raises(TallmasksError, match="'LORA'"):
        FAMILY.convert_checkpoint(IA3, tmp_path / "out", pretrained[0])
