"""Checkpoint files of every odd kind: each is imported right, or refused in one line that names it."""

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import save_file

from small_clip import ARCHITECTURE, scramble
from tallmasks.models.clip import FAMILY
from tallmasks.models.clip import network as clip
from tallmasks.models.clip.foreign_checkpoints import convert
from tallmasks.store.errors import TallmasksError
from tallmasks.vectors.checkpoints.opening import open_checkpoint

State = dict[Any, Any]
Change = Callable[[State, str], None]


def base() -> tuple[dict[str, torch.Tensor], State]:
    """Pretrained weights and a checkpoint that was fine-tuned from them, image encoder and all."""
    torch.manual_seed(0)
    network = clip.build(ARCHITECTURE)
    scramble(network, 0)
    pretrained = network.state_dict()
    return pretrained, {n: t + 0.01 if n.startswith("visual.") else t.clone() for n, t in pretrained.items()}


PRETRAINED, FINETUNED = base()
NAMES = sorted(name for name in PRETRAINED if name.startswith("visual."))


def becomes(change: Callable[[torch.Tensor], Any]) -> Change:
    def apply(state: State, name: str) -> None:
        state[name] = change(state[name])

    return apply


def at(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """One value is another."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.view(-1)[tensor.numel() // 2] = value
        return changed

    return change


def quantised(tensor: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8)


def again_with_prefix(state: State, name: str) -> None:
    state[f"model.{name}"] = state[name] + 1


HARMLESS: dict[str, Change] = {
    "as it is": lambda state, name: None,
    "half": becomes(lambda t: t.half()),
    "bfloat16": becomes(lambda t: t.bfloat16()),
    "double": becomes(lambda t: t.double()),
    "a parameter": becomes(torch.nn.Parameter),
    "transposed in memory": becomes(lambda t: t.mT.contiguous().mT if t.ndim > 1 else t),
    "a part of more": becomes(lambda t: torch.cat([t.flatten(), t.flatten()])[: t.numel()].view(t.shape)),
    "negated in memory": becomes(lambda t: torch._neg_view(-t)),
    "no frozen part": lambda state, name: [state.pop(n) for n in list(state) if not n.startswith("visual.")],
}
HARMFUL: dict[str, Change] = {
    "missing": lambda state, name: state.pop(name),
    "of another shape": becomes(lambda t: t[:1].repeat(3, *[1] * (t.ndim - 1))[..., :1]),
    "empty": becomes(lambda t: t.flatten()[:0]),
    "int64": becomes(lambda t: t.to(torch.int64)),
    "complex": becomes(lambda t: t.to(torch.complex64)),
    "float8": becomes(lambda t: t.to(torch.float8_e4m3fn)),
    "NaN": becomes(at(float("nan"))),
    "minus infinity in half": becomes(lambda t: at(float("-inf"))(t.half())),
    "beyond float32": becomes(lambda t: at(1e300)(t.double())),
    "twice": again_with_prefix,
    "unknown": lambda state, name: state.update({f"{name}_scale": torch.ones(1)}),
}
ONLY_TORCH: dict[str, Change] = {  # what safetensors cannot hold
    "sparse": becomes(lambda t: t.to_sparse()),
    "compressed sparse": becomes(lambda t: t.reshape(t.shape[0], -1).to_sparse_csr()),
    "quantised": becomes(quantised),
    "without values": becomes(lambda t: t.to("meta")),
    "nested": becomes(lambda t: torch.nested.nested_tensor([t, t])),
    "one value seen as many": becomes(lambda t: torch.ones(1).expand(t.numel()).view(t.shape)),
    "one value seen as 10^18": becomes(lambda t: torch.ones(1).expand(10**9).expand(10**9, 10**9)),
    "a list": becomes(lambda t: t.flatten()[:3].tolist()),
    "a number for a name": lambda state, name: state.update({7: state[name]}),
    "an epoch beside them": lambda state, name: state.update({"epoch": 3}),
}


def imported(path: Path, pretrained: dict[str, torch.Tensor] = PRETRAINED) -> dict[str, NDArray[np.float32]]:
    """What is imported of a checkpoint; the pretrained file lies beside it."""
    beside = path.with_name("pretrained.safetensors")
    save_file(pretrained, beside)
    return convert(open_checkpoint(path), open_checkpoint(beside), "visual.")


def refused(path: Path, read: Callable[[Path], object] = imported) -> str:
    with pytest.raises(TallmasksError) as caught:
        read(path)
    said = str(caught.value)
    assert path.name in said and "\n" not in said and len(said) < 700, said
    return said


def save(state: State, path: Path) -> None:
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file({name: tensor.resolve_neg().contiguous() for name, tensor in state.items()}, path)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("change", HARMLESS)
def test_what_holds_the_same_values_is_imported(change: str, suffix: str, tmp_path: Path) -> None:
    """A checkpoint would be refused, or read wrong, for how it lies in memory."""
    for name in ("visual.transformer.resblocks.1.attn.in_proj_weight", "visual.ln_post.bias"):
        state, path = dict(FINETUNED), tmp_path / f"cars{suffix}"
        HARMLESS[change](state, name)
        save({"state_dict": state, "epoch": 3} if suffix == ".pt" else state, path)
        found = imported(path)
        assert list(found) == NAMES
        for key, values in found.items():
            np.testing.assert_array_equal(values, state[key].detach().resolve_neg().float().numpy(), key, strict=True)
            assert values.flags.c_contiguous


def as_pretrained(path: Path) -> object:
    return FAMILY.convert_pretrained({"family": "clip", "architecture": ARCHITECTURE}, path)


@pytest.mark.parametrize("change", [*HARMFUL, *ONLY_TORCH])
def test_every_odd_tensor_is_refused_by_name(change: str, tmp_path: Path) -> None:
    """An accuracy of 200 % would be printed, or the user would not know which of 150 tensors to look at."""
    name, names = "visual.transformer.resblocks.0.mlp.c_fc.weight", ("visual.", "7 is no", "'epoch' is a int", "twice")
    for suffix in (".pt", ".safetensors")[: 2 if change in HARMFUL else 1]:
        state, path = dict(FINETUNED), tmp_path / f"mnist{suffix}"
        (HARMFUL | ONLY_TORCH)[change](state, name)
        save(state, path)
        said = refused(path)
        assert any(name in said for name in (*names, "more than tensors")), said
        refused(path, as_pretrained)


def test_what_overflows_in_the_task_vector_is_refused(tmp_path: Path) -> None:
    """It would be told of a file in the store, after hours, and not of the user's own."""
    name, path = "visual.ln_post.bias", tmp_path / "svhn.pt"
    save({**FINETUNED, name: torch.full_like(FINETUNED[name], -3e38)}, path)
    pretrained = {**PRETRAINED, name: torch.full_like(PRETRAINED[name], 3e38)}
    assert "too large to subtract" in refused(path, lambda path: imported(path, pretrained))


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_cut_or_changed_file_is_refused_or_whole(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A broken download would end in a traceback that names no file, or in weights that are no weights."""
    suffix = data.draw(st.sampled_from([".pt", ".safetensors", ".old.pt"]))
    path = tmp_path_factory.mktemp("changed") / f"cars{suffix}"
    if suffix == ".old.pt":
        torch.save(FINETUNED, path, _use_new_zipfile_serialization=False)
    else:
        save(FINETUNED, path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        window = data.draw(st.sampled_from([2000, len(content)]))  # half of the time in the header or pickle
        place = data.draw(st.integers(0, window - 1))
        if data.draw(st.booleans()):
            place = len(content) - 1 - place
        content[place : place + 8] = data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(content)
    try:
        found = imported(path)
    except TallmasksError as error:
        assert path.name in str(error) and "\n" not in str(error), error
    else:
        assert list(found) == NAMES
        assert all(t.shape == PRETRAINED[n].shape and np.isfinite(t).all() for n, t in found.items())


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_what_is_no_file_of_tensors_is_refused(suffix: str, tmp_path: Path) -> None:
    """A job would hang for ever on a pipe, or take all of the machine's memory."""
    path = tmp_path / f"cars{suffix}"
    assert "no such file" in refused(path)
    path.write_bytes(b"")
    refused(path)
    for text in (b"{}", b"<html>not found</html>", b"\xff" * 64, b"PK\x05\x06" + bytes(18), pickle.dumps([1, 2])):
        path.write_bytes(text)
        refused(path)
    path.unlink()
    os.mkfifo(path)
    assert "plain file" in refused(path)
    refused(path, as_pretrained)
    path.unlink()
    path.mkdir()
    assert "no file of weights" in refused(path)


def test_an_archive_that_unpacks_to_more_is_refused(tmp_path: Path) -> None:
    """A file of megabytes would fill the memory of the machine."""
    path, whole = tmp_path / "cars.pt", tmp_path / "whole.pt"
    torch.save(FINETUNED, whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, bytes(entry.file_size) if "/data/" in entry.filename else old.read(entry))
    assert "unpacks to" in refused(path)
