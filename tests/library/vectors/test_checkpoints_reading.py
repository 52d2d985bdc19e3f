"""Checkpoints in all common layouts are read correctly, or refused with a one-line error that names the file."""

import hashlib
import json
import os
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loopback_hub import COMMIT, REPOSITORY, loopback_hub
from small_checkpoints import file_of, llama, refusal, saved_llama, state, whole
from strategies import no_deadline
from tallmasks.vectors.checkpoints.opening import open_checkpoint

FILES = ["model.safetensors", "model.pt", "model.pth", "model.ckpt", "model.bin"]


def check_state(checkpoint, tensors):
    """Compare names, dtypes and values with a state dict."""
    assert list(checkpoint.tensors) == sorted(tensors)
    for name, tensor in tensors.items():
        assert checkpoint.tensors[name].shape == tuple(tensor.shape)
        run = checkpoint.raw_bytes(name, 0, tensor.numel())
        assert bytes(run) == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), name
        if tensor.is_floating_point():
            np.testing.assert_array_equal(whole(checkpoint, name), tensor.float().numpy())
    floats = {name for name, tensor in tensors.items() if tensor.is_floating_point()}
    assert set(checkpoint.layout.names) == {name for name in floats if "running" not in name}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_it_is(name, tmp_path):
    """Other weights than the file's would be merged."""
    path = file_of(tmp_path, state(), name)
    checkpoint = open_checkpoint(str(path))
    check_state(checkpoint, state())
    assert checkpoint.title == str(path) and checkpoint.origin == {"path": str(path)} and not checkpoint.aliases
    assert checkpoint.files == {name: path} and not checkpoint.companions
    assert checkpoint.sha256s() == {name: hashlib.sha256(path.read_bytes()).hexdigest()}
    check_state(open_checkpoint(tmp_path), state())


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, called, *arguments):
        self.call = called, arguments

    def __reduce__(self):
        return self.call


def rewritten(path, change):
    """A copy of a torch.save file with other records: ``change`` gets a name and its bytes."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_name("new.bin"), "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name.partition("/")[2], old.read(name)))
    return path.with_name("new.bin")


@pytest.mark.parametrize("size", [139, 144])
def test_a_record_of_another_length_is_refused(size, tmp_path):
    """What follows in the file would be read as weights, up to 1e38; or another model than torch's, which refuses."""
    path = file_of(tmp_path, {"a": torch.ones(3), "w": torch.randn(7, 5), "z": torch.ones(90)}, "whole.bin")
    other = rewritten(path, lambda name, data: (2 * data)[:size] if name == "data/1" else data)
    assert f"data/1 has {size} bytes; expected 140" in refusal(lambda: open_checkpoint(other))


@pytest.mark.parametrize("zipped", [True, False])
def test_what_people_save_beside_tensors_is_read(zipped, tmp_path):
    """Checkpoints that also hold optimizers or schedules would be refused."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = module.state_dict()
    weights = dict(module.named_parameters())
    training = {"state": {0: {"step": torch.ones(1)}}, "param_groups": [{"betas": (0.9, 0.99)}]}
    beside = {"optimizer": training, "shape": torch.Size([3]), "on": torch.device("cpu"), "raw": b"x", 1: 1j}
    schedule = {"milestones": Counter({30: 1}), "seen": {1, 2}}
    old = Call(OrderedDict, [[name, tensor] for name, tensor in state.items()])
    for saved, expected in (
        (state, state),
        (old, state),
        (weights, weights),
        ({"state_dict": state, "lr_schedulers": [schedule], **beside}, state),
    ):
        torch.save(saved, tmp_path / "saved.ckpt", _use_new_zipfile_serialization=zipped)
        check_state(open_checkpoint(tmp_path / "saved.ckpt"), {n: t.detach() for n, t in expected.items()})


def test_tied_tensors_count_once_and_views_are_read_as_they_are_counted(tmp_path):
    """A tied embedding would be counted and merged twice; a transposed one would be scrambled."""
    tensors = state()
    tensors["z.tied"] = tensors["b.weight"]
    tensors["transposed"] = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    tensors["part"] = torch.arange(10.0).half()[1::2]
    tensors["inner"] = tensors["b.weight"][1:3]
    checkpoint = open_checkpoint(file_of(tmp_path, tensors, "model.pt"))
    assert checkpoint.aliases == {"z.tied": "b.weight"}
    np.testing.assert_array_equal(whole(checkpoint, "z.tied"), tensors["b.weight"].numpy())
    tensors.pop("z.tied")
    check_state(checkpoint, tensors)


@no_deadline
@given(st.data())
def test_any_piece_is_that_part_of_the_tensor(tmp_path_factory, data):
    """Weights would be merged with their neighbours."""
    path = tmp_path_factory.getbasetemp() / "pieces.pt"
    if not path.exists():
        torch.save({**state(), "turned": torch.randn(4, 6, 3).bfloat16().permute(1, 2, 0)}, path)
    checkpoint, tensors = open_checkpoint(path), torch.load(path, weights_only=True)
    name = data.draw(st.sampled_from([*checkpoint.layout.names]))
    stop = data.draw(st.integers(0, tensors[name].numel()))
    start = data.draw(st.integers(0, stop))
    expected = tensors[name].reshape(-1)[start:stop].float().numpy()
    np.testing.assert_array_equal(checkpoint.piece(name, start, stop), expected)


@pytest.mark.parametrize(("shards", "dtype"), [("5GB", torch.float32), ("20KB", torch.bfloat16)])
def test_a_folder_of_transformers_is_read(shards, dtype, tmp_path):
    """Most models are saved as such folders."""
    folder = saved_llama(tmp_path / "base", shards, dtype=dtype)
    checkpoint = open_checkpoint(folder)
    check_state(checkpoint, llama(dtype=dtype).state_dict())
    assert (len(checkpoint.files) > 2) == (shards == "20KB")
    assert {"config.json", "generation_config.json", "tokenizer.json"} == set(checkpoint.companions)


def test_other_folders_are_read(tmp_path):
    """Folders of open_clip, older transformers and plain torch files would be refused."""
    others = {"open_clip_model.safetensors": "optimizer.pt", "mine.pt": "optimizer.pt", "mine.safetensors": "mine.bin"}
    for name, other in others.items():
        file_of(tmp_path / name, state(), name)
        file_of(tmp_path / name, state(1), other)
        check_state(open_checkpoint(tmp_path / name), state())


def test_folders_that_are_not_whole_are_refused(tmp_path):
    """A model with a missing shard, or with shards of two models, would be merged."""
    folder = saved_llama(tmp_path / "base", "20KB")
    index, shards = folder / "model.safetensors.index.json", sorted(folder.glob("model-*.safetensors"))
    content, weights = shards[1].read_bytes(), json.loads(index.read_text())["weight_map"]
    shards[1].unlink()
    assert shards[1].name in refusal(lambda: open_checkpoint(folder))
    shards[1].write_bytes(shards[0].read_bytes())
    assert shards[1].name in refusal(lambda: open_checkpoint(folder))
    shards[1].write_bytes(content)
    some = next(name for name, file in weights.items() if file == shards[0].name)
    for places, said in (
        (weights | {"absent.weight": shards[0].name}, "absent.weight"),
        (weights | {some: shards[-1].name}, some),
        (weights | {some: "../other.safetensors"}, "'../other.safetensors'"),
        ({name: file for name, file in weights.items() if name != some}, some),
        ([], index.name),
    ):
        index.write_text(json.dumps({"weight_map": places}))
        assert said in refusal(lambda: open_checkpoint(folder))


def test_only_known_files_of_the_folder_itself_are_companions(tmp_path):
    """A link to a private key in a downloaded model, or code, would be copied into the merged model; or a second
    tokenizer be lost."""
    (tmp_path / "id_rsa").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    folder, kept = saved_llama(tmp_path / "base"), {"merges.txt", "LICENSE", "decoder/tokenizer.json"}
    for name in (*kept, "modeling_own.py", ".token", "lm/5gram.bin", "own/modeling_own.py", ".cache/tokenizer.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    with loopback_hub(folder, tmp_path / "cache"):
        from_hub = open_checkpoint(REPOSITORY)
    kept |= {"config.json", "generation_config.json"}
    assert from_hub.companions.keys() == {*kept, "tokenizer.json"}
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("../id_rsa")
    (folder / "vocab.json").symlink_to("merges.txt")
    (folder / "elsewhere").symlink_to("../")
    os.mkfifo(folder / "vocab.txt")
    found = open_checkpoint(folder)
    assert found.companions.keys() == {*kept, "vocab.json"}
    left_out = ("elsewhere/", "lm/", "modeling_own.py", "own/", "tokenizer.json", "vocab.txt")
    assert sorted(line.partition(" ")[0] for line in found.left_out) == sorted(left_out)
    assert "tokenizer.json (a link out of the folder)" in found.left_out


@pytest.mark.parametrize("file", ["model-00002-of", "model.safetensors.index.json"])
def test_weights_that_are_links_out_of_the_folder_are_refused(file, tmp_path):
    """Another file of this machine would be merged and published."""
    folder = saved_llama(tmp_path / "base", "20KB")
    (path,) = [path for path in folder.iterdir() if path.name.startswith(file)]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("../elsewhere")
    assert str(path) in refusal(lambda: open_checkpoint(folder))


def test_nothing_in_a_file_is_run_and_what_is_no_checkpoint_is_refused(tmp_path):
    """A downloaded checkpoint would run its author's code, or end in a traceback."""
    torch.save({"w": torch.ones(3), "trap": Call(os.mkdir, str(tmp_path / "sprung"))}, tmp_path / "trap.pt")
    assert "trap.pt" in refusal(lambda: open_checkpoint(tmp_path / "trap.pt"))
    assert not (tmp_path / "sprung").exists()
    storage = torch.storage.TypedStorage(
        wrap_storage=torch.ones(3).untyped_storage(), dtype=torch.float32, _internal=True
    )
    beyond = Call(torch._utils._rebuild_tensor_v2, storage, 0, (1 << 20,), (1,), False, {})
    torch.save({"w": beyond}, tmp_path / "beyond.pt")
    assert "beyond.pt" in refusal(lambda: open_checkpoint(tmp_path / "beyond.pt"))
    whole_file = file_of(tmp_path, state(), "cut.pt")
    whole_file.write_bytes(whole_file.read_bytes()[:-400])
    assert "cut.pt" in refusal(lambda: open_checkpoint(whole_file))
    file_of(tmp_path, {"sparse": torch.eye(3).to_sparse()}, "sparse.pt")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "empty").mkdir()
    file_of(tmp_path / "two", state(), "a.pt")
    file_of(tmp_path / "two", state(), "b.pt")
    names = {"sparse.pt": "sparse", "model.gguf": "GGUF", "empty": "empty", "two": "a.pt, b.pt", "absent": "absent"}
    for name, said in names.items():
        assert said in refusal(lambda: open_checkpoint(tmp_path / name))  # noqa: B023


def test_a_repository_is_read_from_the_cache_without_a_network(tmp_path, monkeypatch):
    """Hub models could not be opened on cluster nodes, which have no network."""
    with loopback_hub(saved_llama(tmp_path / "model"), tmp_path / "cache"), monkeypatch.context() as patch:
        open_checkpoint(REPOSITORY)
        patch.setattr("tallmasks.io.hub.reachable", lambda: False)
        (folder,) = (tmp_path / "cache").glob("**/snapshots/*")
        (tmp_path / "named").symlink_to(folder)
        for spec in (tmp_path / "named", REPOSITORY, f"{REPOSITORY}@{COMMIT}"):
            found = open_checkpoint(spec)
            assert set(found.companions) == {"config.json", "generation_config.json", "tokenizer.json"}
        assert (found.origin["repository"], found.origin["revision"]) == (REPOSITORY, COMMIT)
        check_state(found, llama().state_dict())
        assert "`hf download org/other --revision v2`" in refusal(lambda: open_checkpoint("org/other@v2"))
        (folder / "model.safetensors").unlink()
        assert f"hf download {REPOSITORY}" in refusal(lambda: open_checkpoint(REPOSITORY))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_file_that_was_damaged_in_the_hubs_cache_is_refused(file, tmp_path):
    """A cached file with one wrong bit was merged, although its link names the checksum."""
    folder = saved_llama(tmp_path / "model")
    with loopback_hub(folder, tmp_path / "cache"):
        blob = (open_checkpoint(REPOSITORY).files["model.safetensors"].parent / file).resolve()
        content = bytearray(blob.read_bytes())
        content[-3] ^= 1
        blob.chmod(0o600)
        blob.write_bytes(content)
        said = refusal(lambda: open_checkpoint(REPOSITORY))
        assert f"Delete {blob}" in said
        blob.unlink()
        assert open_checkpoint(REPOSITORY).tensors == open_checkpoint(folder).tensors
