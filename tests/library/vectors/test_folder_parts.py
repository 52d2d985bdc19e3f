"""Models in several folders, as sentence-transformers and diffusers save them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tallmasks
from small_checkpoints import file_of, refusal
from tallmasks.cli.main import main
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
    if layout is sentence_transformer:
        assert Path("merged/1_Pooling/config.json").read_text() == Path("base/1_Pooling/config.json").read_text()


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
