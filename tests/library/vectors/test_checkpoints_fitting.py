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
from tallmasks.vectors.checkpoints.fitting import check_fit, unchanged
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


def test_tensors_that_are_tied_otherwise_are_refused(tmp_path):
    """One of two embeddings would silently take the other's values."""
    tied = model()
    tied["z.head"] = tied["model.embed_tokens.weight"]
    base = opened(tmp_path / "base", tied, "base.pt")
    apart = {**tied, "z.head": torch.zeros(9, 4)}
    lines = problems(base, task=opened(tmp_path / "task", apart, "task.pt"))
    assert len(lines) == 1 and "z.head" in lines[0]
    check_fit(base, {"same": opened(tmp_path / "same", dict(tied), "same.pt")})


WORDS, HEAD, BODY = "transformer.word_embeddings.weight", "lm_head.weight", "transformer.ln_f.weight"


def test_tied_embeddings_are_found_under_either_name(tmp_path):
    """Models saved by different releases of transformers could not be merged."""
    table, body = torch.arange(36.0).reshape(9, 4), {BODY: torch.ones(4)}
    settings = {"vocab_size": 9, "hidden_size": 4}

    def folder(name, file, tie, *names):
        tensors = {**dict.fromkeys(names, table), **body}
        return bloom(tmp_path / name, tensors, file, tie_word_embeddings=tie, **settings)

    given = {
        "both": folder("both", "pytorch_model.bin", True, WORDS, HEAD),
        "first": folder("first", "model.safetensors", True, WORDS),
        "last": folder("last", "pytorch_model.bin", True, HEAD),
    }
    untied = folder("untied", "model.safetensors", False)
    file_of(untied, {WORDS: table + 1, HEAD: table + 2, **body})
    for base in (*given.values(), untied):
        for task in given.values():
            opened_base = open_model(base)
            found = open_model(task, opened_base)
            check_fit(opened_base, {"task": found})
            for name in opened_base.names:
                np.testing.assert_array_equal(found.float32(name), {WORDS: table, HEAD: table, **body}[name])
    (line,) = problems(open_model(given["first"]), task=open_model(untied, open_model(given["first"])))
    assert HEAD in line and "tie_word_embeddings" in line


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


def test_tokens_without_a_row_get_none(tmp_path):
    """A token had a row of zeros, because no model was resized for it."""
    words, rows = {"the": 0, "cat": 1}, torch.ones(4, 4)
    base = with_tokens(tmp_path / "base", rows[:3], words, "<end>")
    padded = with_tokens(tmp_path / "padded", rows, words, "<end>", "<new>", "<pad>")
    with pytest.warns(UserWarning, match="no model has a row for '<pad>'"):
        grown, _ = with_all_tokens(base, {"padded": padded})
    tokens = json.loads(grown.companions["tokenizer.json"].read_text())["added_tokens"]
    assert [token["content"] for token in tokens] == ["<end>", "<new>"] and len(grown.float32(WORDS)) == 4


@pytest.mark.parametrize("change", [{"count": torch.tensor(4)}, {"steps": None}])
def test_other_counters_are_warned_of(change, tmp_path):
    """A wrong table of position ids would go unnoticed, or a different counter would prevent a merge."""
    base = opened(tmp_path / "base", model())
    with pytest.warns(UserWarning, match=f"mnist: .*{next(iter(change))}"):
        check_fit(base, {"mnist": opened(tmp_path / "task", model(1, **change))})


PACKED = torch.ones(4, 4, dtype=torch.int32)
QUANTISED = {
    "fp8": ({"q.weight": torch.ones(4, 4).to(torch.float8_e4m3fn)}, "q.weight is F8_E4M3 [4, 4]"),
    "gptq": ({"q.qweight": PACKED, "q.qzeros": -PACKED, "q.scales": torch.ones(4).half()}, "q.qweight"),
    "other": ({}, "config.json has quantization_config"),
}


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_models_are_refused(kind, tmp_path):
    """The merged model would combine the base's integers with merged scales."""
    tensors, said = QUANTISED[kind]
    plain, packed = opened(tmp_path / "plain", model()), file_of(tmp_path / "packed", model(**tensors))
    config = {"quantization_config": {}, "text_config": {"quantization_config": {} if tensors else {"bits": 4}}}
    (tmp_path / "packed/config.json").write_text(json.dumps(config))
    (line,) = problems(plain, mnist=open_checkpoint(packed.parent))
    assert line.startswith("mnist: ") and said in line


def test_small_integers_are_no_quantised_weights(tmp_path):
    """Models with position ids, a few flags, or the causal mask of GPT-NeoX and CodeGen could not be merged."""
    integers = {
        "position_ids": torch.arange(8).reshape(1, 8),
        "flags": torch.ones(6, dtype=torch.uint8),
        "layers.0.causal_mask": torch.ones(1, 1, 8, 8, dtype=torch.uint8),
    }
    base, task = opened(tmp_path / "base", model(**integers)), opened(tmp_path / "task", model(1, **integers))
    check_fit(base, {"task": task})


def test_unchanged_tensors_are_those_of_every_task(tmp_path):
    """Frozen layers would be stored for every task, or a change at a tensor's end would be lost."""
    base = opened(tmp_path / "base", model())
    late = torch.zeros((1 << 20) + 7)
    big = opened(tmp_path / "big", model(big=late))
    late = late.clone()
    late[-1] = -0.0
    tasks = {
        "first": opened(tmp_path / "first", model(**{"b.weight": torch.zeros(7, 5)})),
        "second": opened(tmp_path / "second", model(**{"c.brain": torch.zeros(3, 4, 2)}), "second.pt"),
    }
    assert unchanged(base, tasks) == tuple(n for n in base.layout.names if n not in ("b.weight", "c.brain"))
    assert set(big.layout.names) - set(unchanged(big, {"late": opened(tmp_path / "late", model(big=late))})) == {"big"}


SMALL = {
    "GPTJForCausalLM": {"n_embd": 8, "n_layer": 1, "n_head": 1, "rotary_dim": 4, "n_positions": 8},
    "MarianMTModel": {**SEQUENCES, "vocab_size": 6, "decoder_vocab_size": 6, "max_position_embeddings": 6},
}
BY_TOKEN = {
    "GPTJForCausalLM": {"transformer.wte.weight", "lm_head.weight", "lm_head.bias"},
    "MarianMTModel": {"model.shared.weight", "final_logits_bias"},
}
"""The tensors with one row per token; position tables have the same number of rows."""


@pytest.mark.parametrize("name", SMALL)
def test_the_library_says_what_has_a_row_for_each_token(name, tmp_path):
    """Tables without tokens were reordered or enlarged, and the bias of a head was not."""
    kind = getattr(transformers, name)
    positions = {} if name == "MarianMTModel" else {"max_position_embeddings": 6}
    config = kind.config_class(**{"vocab_size": 6, **positions, **SMALL[name]})
    words = {"base": "[PAD] [UNK] a b x y", "task": "[UNK] [PAD] a b y x", "grown": "[PAD] [UNK] a b x y"}
    for seed, (folder, tokens) in enumerate(words.items()):
        torch.manual_seed(seed)
        model = kind(config)
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
        rows = before.take(order, axis) if tensor in BY_TOKEN[name] else before
        np.testing.assert_array_equal(fitted.float32(tensor), rows)
    larger, tasks = with_all_tokens(base, {"grown": grown})
    assert {n for n in base.tensors if larger.tensors[n].shape != base.tensors[n].shape} == BY_TOKEN[name]
    assert all(tasks["grown"].tensors[n].shape == grown.tensors[n].shape for n in base.tensors)
    assert json.loads(larger.companions["config.json"].read_text())["vocab_size"] == 8


def test_tokens_need_a_model_that_the_library_knows(tmp_path):
    """Which tensors have one row per token would be guessed from their names."""
    for name, words in (("base", ["a", "b"]), ("task", ["b", "a"])):
        file_of(tmp_path / name, {"embed_tokens.weight": torch.ones(2, 3), "lm_head.weight": torch.ones(2, 3)})
        content = {"model": {"vocab": {word: row for row, word in enumerate(words)}}}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(content))
    base, task = open_model(tmp_path / "base"), open_model(tmp_path / "task")
    with pytest.raises(TallmasksError, match=f"{base.title}.*tokens is unusable"):
        with_tokens_of(base, task)
