"""Models that can be merged, and a line about what may be wrong with them."""

import json
import warnings
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
import transformers

import tallmasks
from models_made import refusal, run
from small_checkpoints import file_of, lora
from small_models import made, moved
from tallmasks.errors import TallmasksWarning
from tallmasks.vectors.checkpoints import transformers_models
from tallmasks.vectors.checkpoints.opening import open_checkpoint

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these


def said(base, tasks, **settings):
    """The warnings of a merge."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tallmasks.merge_checkpoints(base, tasks, Path(mkdtemp(), "out"), method="weight_averaging", **settings)
    return [str(one.message) for one in caught if issubclass(one.category, TallmasksWarning)]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_configurations_that_compute_something_else_are_named():
    """The merged model had the base's rotary positions, and computed nobody's function."""
    model = made("GPTNeoXForCausalLM")
    model.save_pretrained("base")
    for name, seed in {"a": 1, "b": 2}.items():
        moved(model, seed).save_pretrained(name)
        path = Path(name, "config.json")
        config = json.loads(path.read_text())
        same = {"transformers_version": "4.0.0", "hidden_dropout": 0.3, "use_cache": False, "is_decoder": False}
        changed = {"layer_norm_eps": 1e-3, "id2label": {"0": "no", "1": "yes"}} if name == "b" else {}
        path.write_text(json.dumps({**config, **same, **changed}))
    (line,) = said("base", {"a": "a", "b": "b"})
    assert line.startswith("b: config.json ") and "id2label" in line
    assert "layer_norm_eps (0.001, the base has 1e-05)" in line and "dropout" not in line


def test_a_nested_dtype_is_no_difference():
    """Every merge of a vision-language model warned of a difference that changes nothing."""
    for name, nested in {"base": "float32", "a": "bfloat16"}.items():
        file_of(Path(name), {"layer.weight": torch.randn(4, 4)})
        config = {"text_config": {"dtype": nested, "rope_theta": 1e4}, "vision_config": {"torch_dtype": nested}}
        Path(name, "config.json").write_text(json.dumps(config))
    assert not any("config" in line for line in said("base", {"a": "a"}))
    Path("a", "config.json").write_text(json.dumps(config | {"text_config": {"dtype": nested, "rope_theta": 1e6}}))
    assert any("text_config" in line for line in said("base", {"a": "a"}))


@pytest.mark.parametrize("kind", ["MixtralForCausalLM", "T5ForConditionalGeneration", "Wav2Vec2ForCTC"])
def test_settings_read_without_torch_are_those_of_the_model(kind):
    """A default that only torch knows would be a difference, or a difference none."""
    model = made(kind)
    model.save_pretrained("base")
    config = json.loads(Path("base/config.json").read_text())
    written = {key: value for key, value in config.items() if not isinstance(value, bool | float)}
    Path("base/config.json").write_text(json.dumps(written))  # the others are the library's to fill in
    settings = transformers_models.library_settings(open_checkpoint(Path("base")))
    expected = type(model.config).from_dict(written).to_json_string(use_diff=False)
    assert settings == json.loads(expected) and settings.keys() > written.keys()


def test_tokens_that_differ_are_named():
    """Rows of different tokens were averaged in silence, with both tokenizers beside the weights."""
    model = made("BartForConditionalGeneration")
    words = {"base": {}, "a": {"<x>": 18, "<y>": 19}, "b": {"<y>": 18, "<x>": 19}, "c": {"<x>": 18, "<y>": 19}}
    for seed, (name, added) in enumerate(words.items()):
        (moved(model, seed) if added else model).save_pretrained(name)
        vocabulary = {f"w{row}": row for row in range(18)} | added
        Path(name, "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    (line,) = said("base", {"a": "a", "b": "b"})
    assert "row 18 is '<x>' in a and '<y>' in b" in line and "tokens='union'" in line
    (line,) = said("base", {"a": "a", "c": "c"}, tokens=None)
    assert line.startswith("a, c: tokens that the base lacks (<x>, <y>)")
    for name, text in {"base": "x", "a": "y"}.items():
        Path(name, "second").mkdir()
        Path(name, "second/tokenizer.json").write_text(json.dumps({"model": {"vocab": {text: 0}}}))
        Path(name, "tokenizer.json").rename(Path(name, "spiece.model"))
    first, second, _ = said("base", {"a": "a"})
    assert "the base, a" in first and "cannot be compared" in first
    assert "tokenizers in second/ differ" in second and "row 0 is 'x' in the base and 'y' in a" in second


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "T5ForConditionalGeneration"])
def test_a_base_that_is_a_task_and_a_task_twice_are_noticed(kind):
    """Base and task swapped gave a model of nobody, and a checkpoint under two names counted twice, in silence."""
    model = made(kind)
    names = {"base": model, **{name: moved(model, seed) for seed, name in enumerate("abc", 1)}}
    for name, one in names.items():
        one.save_pretrained(name)
    assert said("base", {name: name for name in "abc"}) == []
    (line,) = said("a", {"base": "base", "b": "b", "c": "c"})
    assert "cosines from 0." in line and " a is the pretrained base" in line
    (line,) = said("a", {"b": "b", "c": "c"})
    assert "cosines from 0." in line
    names["a"].save_pretrained("copy", max_shard_size="10kB")
    (line,) = said("base", {"a": "a", "b": "b", "again": "copy"})
    assert line.startswith("a and again are the same checkpoint")


@pytest.mark.parametrize("trained", ["A", "B"])
def test_an_untrained_adapter_is_noticed(trained, capsys):
    """A LoRA that was saved before its training, as peft starts it, took part in a merge or a bundle in silence."""
    file_of(Path("base"), {"layer.weight": torch.ones(6, 5), "other.weight": torch.ones(6, 5)})
    file_of(Path("a"), {"layer.weight": torch.ones(6, 5) * 2, "other.weight": torch.ones(6, 5)})
    for folder, of in {"none": (trained,), "one": "AB"}.items():
        shapes = {"A": (4, 5), "B": (6, 4)}
        lora(Path(folder), {f"layer.lora_{n}.weight": torch.ones(s) * (n in of) for n, s in shapes.items()})
    for command in (["merge", "--method", "ties"], ["compress"]):
        for folder in ("none", "one"):
            words = [
                *command,
                "--base",
                "base",
                "--task",
                "a=a",
                "--task",
                f"x={folder}",
                "-o",
                f"{command[0]}-{folder}",
            ]
            assert run(*words) == 0
            assert ("x: all weights are identical to the base's" in capsys.readouterr().err) == (folder == "none")
        assert "nothing to merge" in refusal(capsys, *command, "--base", "base", "--task", "x=none", "-o", "out")


PACKED = {
    "exl2": {"layer.q_weight": torch.int32, "layer.q_groups": torch.int16},
    "aqlm": {"layer.codes": torch.int16},
    "marlin": {"layer.B": torch.int32},
    "vptq": {"layer.indices": torch.int64},
}


@pytest.mark.parametrize("kind", PACKED)
def test_packed_integers_are_no_weights(kind):
    """The merged model had the base's integers and the mean of the scales: weights of nobody."""
    for number, name in enumerate(("base", "a", "b")):
        draw = torch.Generator().manual_seed(number)
        packed = {n: torch.randint(0, 99, (4, 8), generator=draw).to(kind) for n, kind in PACKED[kind].items()}
        file_of(Path(name), {"layer.scales": torch.rand(4, generator=draw), **packed})
    for command in (lambda: said("base", {"a": "a", "b": "b"}), lambda: tallmasks.compress("base", {"a": "a"}, "x")):
        with pytest.raises(tallmasks.TallmasksError, match=next(iter(PACKED[kind]))):
            command()
    kept = said("base", {"a": "a", "b": "b"}, keep_base=list(PACKED[kind]))
    assert not any("integers" in line for line in kept)


def test_integers_that_the_library_calls_buffers_are_no_weights():
    """A model with a table of integers of its own could not be merged."""
    for number, name in enumerate(("base", "a", "b")):
        size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "patch_size": 4, "max_img_size": 8}
        model = transformers.RadioModel(transformers.RadioConfig(**size, image_size=8, summary_idxs=[number, 2]))
        model.save_pretrained(name)
    assert any("summary_idxs" in line for line in said("base", {"a": "a", "b": "b"}))
