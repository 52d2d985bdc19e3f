"""Models in several folders, as sentence-transformers and diffusers save them."""

import json
import shutil
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

import tallmasks
from small_checkpoints import file_of, refusal
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.folders import is_companion, part_of, parts_of
from tallmasks.vectors.checkpoints.opening import open_checkpoint

PIPELINE = {"_class_name": "P", "unet": ["diffusers", "UNet"], "coder": ["transformers", "T5"], "extra": [None, None]}
MODULES = [{"path": path} for path in ("0_Transformer", "1_Pooling", "2_Dense")]


def sentence_transformer(folder: Path, value: float) -> Path:
    """A model in the old layout, with a trained layer after the pooling."""
    file_of(folder / "0_Transformer", {"layer.weight": torch.full((4, 4), value)})
    file_of(folder / "2_Dense", {"linear.weight": torch.full((2, 4), 2 * value)}, "pytorch_model.bin")
    for part in ("0_Transformer", "1_Pooling"):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "config.json").write_text('{"torch_dtype": "float32"}')
    (folder / "modules.json").write_text(json.dumps(MODULES))
    return folder


def words(folder: Path, value: float) -> Path:
    """Word embeddings in the main folder, an LSTM with settings of its own, and a Router with a part for queries."""
    file_of(folder, {"emb_layer.weight": torch.full((3, 4), value)})
    file_of(folder / "1_LSTM", {"encoder.weight": torch.full((2, 4), 2 * value)})
    file_of(folder / "2_Router/query_0_Dense", {"linear.weight": torch.full((2, 2), 3 * value)})
    settings = ("wordembedding_config.json", "1_LSTM/lstm_config.json", "2_Router/query_0_Dense/config.json")
    for name in (*settings, "whitespacetokenizer_config.json"):
        (folder / name).write_text(json.dumps({"of": name}))
    (folder / "2_Router/router_config.json").write_text(json.dumps({"types": {"query_0_Dense": "Dense"}}))
    modules = [{"path": "."}, {"path": "1_LSTM/"}, {"path": "2_Router"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def pipeline(folder: Path, value: float) -> Path:
    """A diffusers pipeline; its first part is in shards."""
    shards = {"down.weight": "diffusion_pytorch_model-00001-of-00002.safetensors"}
    shards["up.weight"] = "diffusion_pytorch_model-00002-of-00002.safetensors"
    for name, file in shards.items():
        file_of(folder / "unet", {name: torch.full((3, 3), value)}, file)
    index = {"metadata": {"total_size": 72}, "weight_map": shards}
    (folder / "unet/diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    file_of(folder / "coder", {"shared.weight": torch.full((5, 3), 3 * value)})
    file_of(folder / "left_over", {"down.weight": torch.full((3, 3), 9.0)})
    file_of(folder, {"whole": torch.ones(2)}, "single_file.safetensors")
    (folder / "model_index.json").write_text(json.dumps(PIPELINE))
    return folder


LAYOUTS = {
    sentence_transformer: {"0_Transformer/model.safetensors": 1, "2_Dense/model.safetensors": 2},
    words: {"model.safetensors": 1, "1_LSTM/model.safetensors": 2, "2_Router/query_0_Dense/model.safetensors": 3},
    pipeline: {
        "unet/diffusion_pytorch_model-00001-of-00002.safetensors": 1,
        "unet/diffusion_pytorch_model-00002-of-00002.safetensors": 1,
        "coder/model.safetensors": 3,
    },
}
"""The weight files of a merged model, with the factor of their values."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_part_is_merged_and_comes_back_from_a_bundle(layout, tmp_path, monkeypatch):
    """A trained layer in a separate folder was silently replaced by the base's."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"base": 0.0, "a": 1.0, "b": 3.0}.items():
        layout(Path(name), value)
    tasks = {"a": "a", "b": "b"}
    tallmasks.merge_checkpoints("base", tasks, "merged", method="weight_averaging")
    tallmasks.compress("base", tasks, "bundle", method="lossless", include_base=True)
    assert main(["export", "bundle", "--task", "b", "-o", "b2"]) == 0
    for folder, value in {"merged": 2.0, "b2": 3.0}.items():
        files = {path.relative_to(folder).as_posix(): load_file(path) for path in Path(folder).rglob("*.safetensors")}
        assert files.keys() == LAYOUTS[layout].keys()
        for file, tensors in files.items():
            for name, tensor in tensors.items():
                assert "/" not in name
                torch.testing.assert_close(tensor, torch.full_like(tensor, LAYOUTS[layout][file] * value))
        assert open_checkpoint(folder).names == open_checkpoint("base").names
    for path in Path("base").rglob("*config.json"):
        for folder in ("merged", "b2"):
            assert (Path(folder) / path.relative_to("base")).read_text() == path.read_text()


def test_an_index_of_folders_leads_nowhere_else(tmp_path):
    """An untrusted model could include files outside of its folder, or unlisted weights would be ignored."""
    model = sentence_transformer(tmp_path / "sentences", 1)
    for part in ("a\nb", "..", "a/b", "\ud800"):
        (model / "modules.json").write_text(json.dumps([*MODULES, {"path": part}]))
        assert "modules.json" in refusal(lambda: open_checkpoint(model))
    folder = pipeline(tmp_path / "model", 1.0)
    for part in ("../secrets", "nothing"):
        (folder / "model_index.json").write_text(json.dumps({part: ["a", "b"]}))
        assert part in refusal(lambda: open_checkpoint(folder))
    pipeline(folder, 1.0)
    file_of(folder / "coder/inner", {"w": torch.ones(2)})
    assert "coder/inner" in refusal(lambda: open_checkpoint(folder))
    for part in ("0_Transformer", "2_Dense"):  # two links to the folder itself: 2**40 paths
        shutil.rmtree(model / part)
        (model / part).symlink_to(".")
    (model / "modules.json").write_text(json.dumps(MODULES))
    assert parts_of(model, ["modules.json"]) == [module["path"] for module in MODULES]
    assert not is_companion("adapter_config.json")  # transformers would download the base that it names


@pytest.mark.parametrize("first", ["", "0_Transformer"])
def test_a_live_sentence_transformer_is_switched(first, tmp_path):
    """Its modules are numbered, and its files are in folders: a server could not switch it."""

    def model(seed):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
        parts = {name: torch.nn.Module() for name in "0123"}
        parts["0"].auto_model, parts["2"].linear = BertModel(config), torch.nn.Linear(8, 4)
        return torch.nn.Sequential(OrderedDict(parts))

    modules = [{"path": path} for path in (first, "1_Pooling", "2_Dense", "3_Normalize")]
    for seed, name in enumerate(("base", "a")):
        encoder, _, dense, _ = model(seed)
        encoder.auto_model.save_pretrained(tmp_path / name / first)
        file_of(tmp_path / name / "2_Dense", dense.state_dict())
        (tmp_path / name / "modules.json").write_text(json.dumps(modules))
    bundle = tallmasks.compress(tmp_path / "base", {"a": tmp_path / "a"}, tmp_path / "bundle", method="lossless")
    live, wanted = model(0), model(1).state_dict()
    tallmasks.load_bundle(bundle).apply_(live, "a")
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in live.state_dict().items())
    with pytest.raises(TallmasksError, match="the folder that `tallmasks export` writes"):
        tallmasks.load_bundle(bundle).apply_(torch.nn.Sequential(live[2], live[0]), "a")


def test_a_part_has_its_own_tensors_and_ties(tmp_path):
    """A LoRA on a part would be added to the tensors of another part, or a tied tensor be lost."""
    model = words(tmp_path / "model", 1.0)
    tied = torch.ones(2, 2)
    file_of(model / "2_Router/query_0_Dense", {"a": tied, "b": tied}, "pytorch_model.bin")
    (model / "2_Router/query_0_Dense/model.safetensors").unlink()
    opened = open_checkpoint(model)
    assert opened.aliases == {"2_Router/query_0_Dense/b": "2_Router/query_0_Dense/a"} and not opened.left_out
    inner = part_of(opened, "2_Router/query_0_Dense")
    assert ([*inner.tensors], inner.aliases) == (["a"], {"b": "a"})
    assert [*part_of(opened, "").tensors] == ["emb_layer.weight"]


def test_companions_lie_two_folders_deep_in_a_part_and_no_deeper():
    """A bundle of a model with a tokenizer in a part of a part would be refused, or one with any path be accepted."""
    assert is_companion("2_Router/query_0_Dense/tokenizer/slow/vocab.txt")
    assert not is_companion("2_Router/query_0_Dense/tokenizer/slow/old/vocab.txt")
