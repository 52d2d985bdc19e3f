"""Checks of checkpoints against their base: every mismatch is reported on its own line before a merge."""

import json

import numpy as np
import pytest
import torch
import transformers

from small_checkpoints import bloom, file_of, state
from small_models import SEQUENCES
from tallmasks.bundles.bundle_models import open_model
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.fitting import check_fit
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.vocabularies import with_all_tokens, with_tokens_of

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these


def opened(folder, tensors, name="model.safetensors"):
    return open_checkpoint(file_of(folder, tensors, name))


def problems(base, **tasks) -> list[str]:
    with pytest.raises(TallmasksError) as caught:
        check_fit(base, tasks)
    return str(caught.value).splitlines()


def model(seed=0, **changes):
    """A state dict with a vocabulary; None removes a tensor."""
    named = {"model.embed_tokens.weight": torch.ones(9, 4), "position_embedding.weight": torch.ones(6, 4)}
    return {name: tensor for name, tensor in {**state(seed), **named, **changes}.items() if tensor is not None}


def test_every_problem_has_its_line(tmp_path):
    """The user would need one run per problem to find them all, or read the same advice for each model."""
    base = opened(tmp_path / "base", model())
    changes = {
        "missing": ({"b.weight": None}, "b.weight"),
        "extra": ({"new.bias": torch.ones(2)}, "new.bias"),
        "shape": ({"a.half": torch.ones(3, 11)}, "a.half (found [3, 11], expected [33])"),
        "tokens": ({"model.embed_tokens.weight": torch.ones(10, 4)}, "resize_token_embeddings"),
        "integers": ({"b.weight": torch.ones(7, 5, dtype=torch.int32)}, "b.weight (found I32, expected F32)"),
    }
    tasks = {name: opened(tmp_path / name, model(1, **change)) for name, (change, _) in changes.items()}
    lines = problems(base, **tasks)
    for name, (_, said) in changes.items():
        (line,) = (line for line in lines if f"{name}: " in line)
        assert said in line, line
    assert len(lines) == len(changes)


WORDS, BODY = "transformer.word_embeddings.weight", "transformer.ln_f.weight"


def with_tokens(path, rows, vocabulary, *added):
    """A BLOOM with a tokenizer; added tokens follow the vocabulary."""
    bloom(path, {WORDS: rows, BODY: torch.ones(4)}, vocab_size=len(rows), hidden_size=4)
    tokens = [{"id": number, "content": text} for number, text in enumerate(added, len(vocabulary))]
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": tokens}))
    return open_model(path)


def test_embeddings_take_the_rows_of_the_bases_tokens(tmp_path):
    """A task with added tokens could not be merged, or rows of different tokens would be added."""
    ours = torch.arange(16.0).reshape(4, 4)  # the last row is padding
    theirs = 100 + torch.arange(20.0).reshape(5, 4)
    base = with_tokens(tmp_path / "base", ours, {"the": 0, "cat": 1}, "<end>")
    other = [["cat", 0.0], ["sat", 0.0], ["the", 0.0]]
    task = with_tokens(tmp_path / "task", theirs.bfloat16(), other, "<odd>", "<new>")
    fitted = with_tokens_of(base, task)
    check_fit(base, {"task": fitted})
    rows = torch.stack([theirs[2], theirs[0], ours[2], ours[3]]).numpy()
    np.testing.assert_array_equal(fitted.float32(WORDS), rows)
    for start, stop in ((0, 16), (1, 7), (6, 9), (15, 16)):
        np.testing.assert_array_equal(fitted.piece(WORDS, start, stop), rows.reshape(-1)[start:stop])
    assert with_tokens_of(base, base) is base and "`tokens: base`" in problems(base, task=task)[0]
    with pytest.raises(TallmasksError, match="sat"):
        with_all_tokens(base, {"task": task})
    (tmp_path / "task/tokenizer.json").write_text('{"model": {"vocab": {"the": -1}}}')
    with pytest.raises(TallmasksError, match=r"tokenizer\.json"):
        with_tokens_of(base, open_model(tmp_path / "task"))


def test_all_tokens_come_after_the_bases(tmp_path):
    """A merged chat model would lack the tokens that mark the start and end of a message."""
    words = {"the": 0, "cat": 1}
    ours, one, two = (start + torch.arange(16.0).reshape(4, 4) for start in (0, 100, 200))
    base = with_tokens(tmp_path / "base", ours, words)  # rows 2 and 3 are padding
    tasks = {
        "one": with_tokens(tmp_path / "one", one, words, "<a>", "<b>"),
        "two": with_tokens(tmp_path / "two", torch.cat([two, two[:1] + 50]), words, "<b>", "<c>", "<d>"),
    }
    grown, grown_tasks = with_all_tokens(base, tasks)
    check_fit(grown, grown_tasks)
    b = (one[3] + two[2]) / 2
    expected = torch.stack([ours[0], ours[1], one[2], b, two[3], two[0] + 50])
    np.testing.assert_array_equal(grown.float32(WORDS), expected)
    np.testing.assert_array_equal(grown_tasks["one"].float32(WORDS), torch.cat([one, expected[4:]]))
    expected[:2], expected[3] = two[:2], two[2]
    np.testing.assert_array_equal(grown_tasks["two"].float32(WORDS), expected)
    tokens = json.loads(grown.companions["tokenizer.json"].read_text())["added_tokens"]
    assert [(token["content"], token["id"]) for token in tokens] == [("<a>", 2), ("<b>", 3), ("<c>", 4), ("<d>", 5)]
    assert json.loads(grown.companions["config.json"].read_text())["vocab_size"] == 6


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_quantised_models_are_refused(dtype, tmp_path):
    """The merged model would combine the base's integers with merged scales."""
    packed = opened(tmp_path / "packed", model(**{"q.weight": torch.ones(4, 4).to(dtype)}))
    (line,) = problems(opened(tmp_path / "plain", model()), mnist=packed)
    assert line.startswith("mnist: ") and "q.weight is " in line


def test_the_library_says_what_has_a_row_for_each_token(tmp_path):
    """Tables without tokens were reordered or enlarged, and the bias of a head was not."""
    sizes = {**SEQUENCES, "vocab_size": 6, "decoder_vocab_size": 6, "max_position_embeddings": 6}
    config, by_token = transformers.MarianConfig(**sizes), {"model.shared.weight", "final_logits_bias"}
    words = {"base": "[PAD] [UNK] a b x y", "task": "[UNK] [PAD] a b y x", "grown": "[PAD] [UNK] a b x y"}
    for seed, (folder, tokens) in enumerate(words.items()):
        torch.manual_seed(seed)
        model = transformers.MarianMTModel(config)
        added = []
        if folder == "grown":
            model.resize_token_embeddings(8, mean_resizing=False)
            added = [{"id": 6, "content": "<a>"}, {"id": 7, "content": "<b>"}]
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        model.save_pretrained(tmp_path / folder)
        vocabulary = {word: row for row, word in enumerate(tokens.split())}
        content = {"model": {"vocab": vocabulary}, "added_tokens": added}
        (tmp_path / folder / "tokenizer.json").write_text(json.dumps(content))
    base, task, grown = (open_model(tmp_path / folder) for folder in words)
    order = [words["task"].split().index(word) for word in words["base"].split()]
    fitted = with_tokens_of(base, task)
    for tensor in base.tensors:
        before = task.float32(tensor)
        axis = 1 if tensor == "final_logits_bias" else 0
        rows = before.take(order, axis) if tensor in by_token else before
        np.testing.assert_array_equal(fitted.float32(tensor), rows)
    larger, tasks = with_all_tokens(base, {"grown": grown})
    assert {n for n in base.tensors if larger.tensors[n].shape != base.tensors[n].shape} == by_token
    assert all(tasks["grown"].tensors[n].shape == grown.tensors[n].shape for n in base.tensors)
    assert json.loads(larger.companions["config.json"].read_text())["vocab_size"] == 8
