"""New checkpoints have the layout of their base, and are written completely or not at all."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import tallmasks
from small_checkpoints import file_of, refusal, saved_llama, state, whole
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.writing import new_checkpoint


def same_as(found, expected, names):
    for name in names:
        size = expected.info(name).size
        assert found.info(name) == expected.info(name), name
        assert bytes(found.raw_bytes(name, 0, size)) == bytes(expected.raw_bytes(name, 0, size)), name


@pytest.mark.parametrize(("shards", "tied"), [("5GB", True), ("20KB", False)])
def test_a_folder_is_written_that_transformers_loads(shards, tied, tmp_path):
    """Merged models could not be used."""
    from transformers import LlamaForCausalLM

    base = open_checkpoint(saved_llama(tmp_path / "base", shards, dtype=torch.bfloat16, tied=tied))
    tuned = open_checkpoint(saved_llama(tmp_path / "tuned", dtype=torch.bfloat16, tied=tied, seed=1))
    changed = base.layout.names[::2]
    (tmp_path / "out").mkdir()
    with new_checkpoint(tmp_path / "out", base, "Merged.") as new:
        for name in changed:
            for start in reversed(range(0, tuned.info(name).size, 100)):  # in any order
                new.write(name, start, tuned.piece(name, start, min(start + 100, tuned.info(name).size)))
    written = open_checkpoint(tmp_path / "out")
    assert written.tensors == base.tensors and written.file_of == base.file_of and written.metadata == base.metadata
    same_as(written, tuned, changed)
    same_as(written, base, set(base.tensors) - set(changed))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in (tmp_path / "base").iterdir()}
    assert (tmp_path / "out" / "README.md").read_text() == "Merged."
    assert not list(tmp_path.glob(".*"))
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert loaded.dtype == torch.bfloat16
    for name, tensor in loaded.state_dict().items():
        if name in written.tensors:
            np.testing.assert_array_equal(tensor.float().numpy(), whole(written, name))


def test_a_model_in_another_dtype_is_loaded_in_it(tmp_path):
    """transformers would round the weights to the dtype in the configuration, or reject the size in the index."""
    from transformers import LlamaForCausalLM

    base = open_checkpoint(saved_llama(tmp_path / "base", "20KB", dtype=torch.bfloat16))
    value = np.float32(1.0000001)
    with new_checkpoint(tmp_path / "out", base, None, "float32") as new:
        new.write("model.norm.weight", 0, np.full(32, value, np.float32))
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert loaded.dtype == torch.float32 and (loaded.model.norm.weight.detach().numpy() == value).all()
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(4 * info.size for info in base.tensors.values())


@pytest.mark.parametrize("source", ["model.safetensors", "model.pt"])
@pytest.mark.parametrize("out", ["new.safetensors", "new.pt"])
def test_a_file_becomes_the_file_that_its_name_says(source, out, tmp_path):
    """A merged open_clip state dict could not be loaded by open_clip."""
    tensors = state()
    if source.endswith(".pt"):
        tensors |= {"z.tied": tensors["b.weight"], "turned": torch.arange(6.0).reshape(2, 3).T}
    base = open_checkpoint(file_of(tmp_path, tensors, source, format="pt"))
    values = np.linspace(-1, 1, 35, dtype=np.float32)
    with new_checkpoint(tmp_path / out, base, "card") as new:
        new.write("b.weight", 5, values[5:])
        new.write("z.tied" if "z.tied" in tensors else "b.weight", 0, values[:5])
    expected = {**tensors, "b.weight": torch.from_numpy(values).reshape(7, 5)}
    if "z.tied" in tensors:
        expected["z.tied"] = expected["b.weight"]
    if out.endswith(".safetensors"):
        found = load_file(tmp_path / out)
        with safe_open(tmp_path / out, "pt") as file:
            assert file.metadata() == {"format": "pt"}
    else:
        found = torch.load(tmp_path / out, weights_only=True)
        assert open_checkpoint(tmp_path / out).aliases == base.aliases
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_existing_files_are_never_overwritten(tmp_path):
    """A merge would overwrite another one, or one of its input models."""
    base = open_checkpoint(file_of(tmp_path, state()))
    folder = open_checkpoint(saved_llama(tmp_path / "llama"))
    (tmp_path / "link.safetensors").symlink_to("nowhere")
    for model, name in ((base, "model.safetensors"), (base, "link.safetensors"), (folder, "llama")):
        assert str(tmp_path / name) in refusal(lambda: new_checkpoint(tmp_path / name, model).__enter__())  # noqa: B023


def test_values_that_are_not_finite_leave_nothing(tmp_path):
    """A model full of NaN or infinity would be left on disk."""
    base = open_checkpoint(file_of(tmp_path, state()))
    for value in (np.nan, 1e6):
        with (
            pytest.raises(tallmasks.TallmasksError, match=r"a\.half"),
            new_checkpoint(tmp_path / "out.safetensors", base, None) as new,
        ):
            new.write("a.half", 0, np.full(33, value, np.float32))
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_constant_masks_are_cast_as_by_torch(dtype, tmp_path):
    """A mask of -1e9 or -inf would prevent writing in 16 bits."""
    mask = torch.full((3, 3), float("-inf")).triu(1)
    masks = {"causal": mask, "h.0.attn.masked_bias": torch.tensor(-1e9)}
    base = open_checkpoint(file_of(tmp_path / "base", {"w": torch.ones(2), **masks}))
    with new_checkpoint(tmp_path / "out.safetensors", base, dtype=dtype) as new:
        new.write("w", 0, np.ones(2, np.float32))
    out = load_file(tmp_path / "out.safetensors")
    assert all(torch.equal(out[name], tensor.to(getattr(torch, dtype))) for name, tensor in masks.items())
