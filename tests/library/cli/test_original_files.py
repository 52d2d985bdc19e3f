"""`--method lossless` gives back whole safetensors files, with the sha256 of the originals."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_model
from transformers import BertConfig, BertForSequenceClassification

import tallmasks
from models_made import run
from tallmasks.bundles.manifest import bundle_digest
from tallmasks.bundles.verification import verify_bundle


def by_name(folder: Path) -> dict[str, str]:
    """The sha256 of a model's weight files and their index, by name."""
    files = [path for path in sorted(folder.rglob("*")) if "safetensors" in path.name]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def bundled(folder: Path, *tasks: str) -> Path:
    words = [word for task in tasks for word in ("--task", f"{task}={folder / task}")]
    assert run("compress", "--base", folder / "base", *words, "--method", "lossless", "-o", folder / "bundle") == 0
    return folder / "bundle"


def weights(number: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(number)
    return {"b.weight": draw.random((4, 600), np.float32), "a.weight": draw.random(9, np.float32), "n": np.arange(3)}


def written_by_hand(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """A safetensors file in another order and with other white space than the library's."""
    header, data = {"__metadata__": {"by": "hand"}}, b""
    for name, values in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        dtype = {"float32": "F32", "int64": "I64"}[values.dtype.name]
        header[name] = {"shape": list(values.shape), "data_offsets": offsets, "dtype": dtype}
        data += values.tobytes()
    text = json.dumps(header, indent=1).encode() + b"  "
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_files_come_back_with_their_sha256(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub shows another sha256 than that of the published model, and a user cannot tell that nothing was lost."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    network = BertForSequenceClassification(config)
    network.bert.save_pretrained(tmp_path / "base")
    for task in ("one", "sharded", "other", "torch"):
        for parameter in network.parameters():
            parameter.data += 0.01 * torch.randn_like(parameter)
        network.save_pretrained(tmp_path / task, max_shard_size="8kB" if task == "sharded" else "5GB")
    state = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    state["embeddings.tied"] = state["bert.embeddings.word_embeddings.weight"].copy()
    written_by_hand(tmp_path / "other/model.safetensors", state)
    (tmp_path / "torch/model.safetensors").unlink()
    torch.save(network.state_dict(), tmp_path / "torch/pytorch_model.bin")
    bundle = bundled(tmp_path, "one", "sharded", "other", "torch")
    said = " ".join(capsys.readouterr().out.split())
    assert "writes the weight files of one, sharded, other with the sha256 of the originals; of torch" in said
    assert run("export", bundle, "--all", "-o", tmp_path / "again") == 0
    for task in ("one", "sharded", "other"):
        assert by_name(tmp_path / "again" / task) == by_name(tmp_path / task)
    assert len(by_name(tmp_path / "sharded")) > 3
    assert run("verify", bundle) == 0
    assert "0 problems\n`tallmasks export` writes the weight files" in capsys.readouterr().out


def test_single_files_come_back_with_their_sha256(tmp_path: Path) -> None:
    """A file that another program wrote comes back in another order."""
    for number, name in enumerate(("base", "a", "b")):
        written_by_hand(tmp_path / f"{name}.safetensors", weights(number))
    tied = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    for name in ("tied_base", "tied"):
        tied[0].weight.data += 1
        save_model(tied, str(tmp_path / f"{name}.safetensors"))
    for base, tasks in (("base", ["a", "b"]), ("tied_base", ["tied"])):
        paths = {task: tmp_path / f"{task}.safetensors" for task in tasks}
        bundle = tallmasks.compress(
            tmp_path / f"{base}.safetensors", paths, tmp_path / f"{base}_bundle", method="lossless"
        )
        for task, path in paths.items():
            out = tmp_path / f"{task}_again.safetensors"
            assert run("export", bundle, "--task", task, "-o", out) == 0
            assert out.read_bytes() == path.read_bytes()


def forged(bundle: Path, change) -> None:  # type: ignore[no-untyped-def]
    """Change the stored header of the only task, and the digests with it."""
    manifest = json.loads((bundle / "bundle.json").read_text())
    original = manifest["models"]["a"]["originals"]["a.safetensors"]
    old = bundle / "companions" / original["header"]
    header = json.loads(old.read_bytes()[8:])
    text = change(header, original) or json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(content).hexdigest()
    old.unlink()
    (bundle / "companions" / digest).write_bytes(content)
    manifest["files"].pop(f"companions/{original['header']}")
    manifest["files"][f"companions/{digest}"] = {"sha256": digest, "bytes": len(content)}
    original["header"] = digest
    (bundle / "bundle.json").write_text(json.dumps(manifest | {"digest": bundle_digest(manifest)}))


HEADERS = {
    "no JSON": lambda header, original: b"[" * 100_000,
    "a list": lambda header, original: b"[]",
    "a gap": lambda header, original: header["a.weight"].update(data_offsets=[10**15, 10**15 + 36]),
    "huge": lambda header, original: header["a.weight"].update(shape=[10**12], data_offsets=[0, 4 * 10**12]),
    "an unknown tensor": lambda header, original: header.update(stranger=header.pop("a.weight")),
    "an unknown copy": lambda header, original: original.update(copies={"a.weight": "stranger"}),
    "another dtype": lambda header, original: header["a.weight"].update(dtype="I32"),
    "a tensor is missing": lambda header, original: header.pop("b.weight") and None,
}


@pytest.mark.parametrize("case", HEADERS)
def test_forged_headers_are_refused(tmp_path: Path, case: str) -> None:
    """A bundle from somebody would end the program with a traceback, fill the disk, or give a model without a part."""
    for number, name in enumerate(("base", "a")):
        save_file(weights(number), tmp_path / f"{name}.safetensors")
    made = tallmasks.compress(tmp_path / "base.safetensors", {"a": tmp_path / "a.safetensors"}, tmp_path / "bundle",
                              method="lossless")  # fmt: skip
    forged(made, HEADERS[case])
    assert any("a.safetensors is damaged" in one or "no stored header" in one for one in verify_bundle(made))
    assert run("export", made, "--task", "a", "-o", tmp_path / "again.safetensors") == 1
    assert not (tmp_path / "again.safetensors").exists()


def test_a_wrong_sha256_is_a_problem(tmp_path: Path) -> None:
    """`verify` would say that the files come back, of files that are others."""
    for number, name in enumerate(("base", "a")):
        save_file(weights(number), tmp_path / f"{name}.safetensors")
    bundle = tallmasks.compress(tmp_path / "base.safetensors", {"a": tmp_path / "a.safetensors"}, tmp_path / "bundle",
                                method="lossless")  # fmt: skip
    forged(bundle, lambda header, original: header.setdefault("__metadata__", {}).update(x="y"))
    (problem,) = verify_bundle(bundle)
    assert "a.safetensors would have the sha256" in problem
