"""Models that can be merged, and a line about what may be wrong with them."""

import json
import warnings
from pathlib import Path
from tempfile import mkdtemp

import pytest

import tallmasks
from small_models import made, moved
from tallmasks.errors import TallmasksWarning

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
    assert "a and again are the same checkpoint" in said("base", {"a": "a", "again": "a"})[0]


def test_tokens_that_differ_are_named():
    """Rows of different tokens were averaged in silence, with both tokenizers beside the weights."""
    model = made("BartForConditionalGeneration")
    words = {"base": {}, "a": {"<x>": 18, "<y>": 19}, "b": {"<y>": 18, "<x>": 19}}
    for seed, (name, added) in enumerate(words.items()):
        (moved(model, seed) if added else model).save_pretrained(name)
        vocabulary = {f"w{row}": row for row in range(18)} | added
        Path(name, "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    (line,) = said("base", {"a": "a", "b": "b"})
    assert "row 18 is '<x>' in a and '<y>' in b" in line and "tokens: union" in line


def test_a_base_that_is_a_task_is_noticed():
    """Base and task swapped gave a model of nobody, in silence."""
    model = made("ViTForImageClassification")
    for seed, name in enumerate(("base", *"abc")):
        (moved(model, seed) if seed else model).save_pretrained(name)
    assert said("base", {name: name for name in "abc"}) == []
    (line,) = said("a", {"base": "base", "b": "b", "c": "c"})
    assert "cosines from 0." in line and " a is the pretrained base" in line
    (line,) = said("a", {"b": "b", "c": "c"})
    assert "cosines from 0." in line
