"""PEFT LoRA folders: their deltas, and one-line errors for unsupported ones."""

import re
import shutil

import numpy as np
import pytest
import torch
import transformers

import tallmasks
from small_checkpoints import bloom, file_of, lora, refusal
from tallmasks.errors import TallmasksError, TallmasksWarning
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import check_fit
from tallmasks.vectors.checkpoints.lora_folders import inputs_first
from tallmasks.vectors.checkpoints.module_patterns import ModulePatterns
from tallmasks.vectors.checkpoints.opening import open_checkpoint

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these

NAMES = {"layers.0.q.weight": (6, 5), "layers.1.q.weight": (6, 5), "embed.weight": (9, 5), "layers.0.q.bias": (6,)}


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def base_of(folder, prefix="", dtype=torch.float32):
    return open_checkpoint(file_of(folder, {prefix + n: drawn(*s).to(dtype) for n, s in NAMES.items()}))


def factors(module, rows, columns, rank=4):
    """A and B, and their product in float64."""
    a, b = drawn(rank, columns), drawn(rows, rank, seed=1)
    tensors = {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    return tensors, (b.double() @ a.double()).numpy()


def delta(checkpoint, base, name):
    """The whole difference, joined from pieces that start within rows, and equal to one read at once."""
    size = base.info(name).size
    found = np.concatenate([checkpoint.difference(base, name, *part) for part in ((0, 3), (3, 17), (17, size))])
    np.testing.assert_array_equal(found, checkpoint.difference(base, name, 0, size))
    return found.reshape(base.info(name).shape)


def check_delta(checkpoint, base, name, expected):
    np.testing.assert_allclose(delta(checkpoint, base, name), expected, rtol=1e-5, atol=1e-6)
    size = base.info(name).size
    summed = base.piece(name, 0, size) + checkpoint.difference(base, name, 0, size)
    np.testing.assert_array_equal(checkpoint.piece(name, 0, size), summed)


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_model.bin"])
@pytest.mark.parametrize("stored, named", [("", ""), ("", "model."), ("model.", ""), ("model.", "model.")])
def test_a_delta_is_scale_times_b_a(file, stored, named, tmp_path):
    """A LoRA would be merged at another strength, or onto another layer."""
    base = base_of(tmp_path / "base", stored)
    tensors, product = factors(f"{named}layers.0.q", 6, 5)
    checkpoint = open_checkpoint(lora(tmp_path / "lora", tensors, file, r=4, lora_alpha=6), base)
    check_delta(checkpoint, base, f"{stored}layers.0.q.weight", 1.5 * product)
    assert not delta(checkpoint, base, f"{stored}layers.1.q.weight").any()
    assert set(checkpoint.files) == {file, "adapter_config.json"} and checkpoint.layout == base.layout


def test_every_option_of_the_scale_counts(tmp_path):
    """Adapters with patterns or rank-stabilised scaling would be wrong by a factor."""
    base = base_of(tmp_path / "base")
    first, one = factors("layers.0.q", 6, 5, rank=4)
    second, two = factors("layers.1.q", 6, 5, rank=3)
    patterns = {"rank_pattern": {"layers.1.q": 3}, "alpha_pattern": {r".*\.0\.q": 10}}
    for number, (config, scales) in enumerate(
        [({}, (10 / 4, 8 / 3)), ({"use_rslora": True}, (10 / 2, 8 / np.sqrt(3)))]
    ):
        folder = lora(tmp_path / f"{number}", {**first, **second}, r=4, lora_alpha=8, **patterns, **config)
        checkpoint = open_checkpoint(folder, base)
        check_delta(checkpoint, base, "layers.0.q.weight", scales[0] * one)
        check_delta(checkpoint, base, "layers.1.q.weight", scales[1] * two)


@pytest.mark.parametrize(
    "pattern",
    [
        "q", "0.q", "layers", "ers.0.q", "^layers.0.q", "q$", r"layers\.\d+\.q", r"layers.[0-9]+.(q|k)", "k|layers.1.q",
        r".*\.0\.q", ".*", "l.*q", r"\d+1.q", r".+\d", r"1\d*.q", "", "self_attn-x", r".*\d+.*\d+.*q", "0|1", ".q",
    ],
)  # fmt: skip
def test_patterns_fit_the_modules_that_they_fit_in_peft(pattern):
    """A layer would be merged at another layer's strength."""
    try:
        found = ModulePatterns({pattern: 1})
    except ValueError:
        assert "(" in pattern
        return
    for module in ("layers.0.q", "layers.11.q", "layers.111.q", "q", "x.layers.0.q", "layersx0.q", "layers.0.k", "0"):
        assert bool(found.value(module, 0)) == bool(re.match(rf"(.*\.)?({pattern})$", module)), module


def test_patterns_take_no_more_than_their_length(tmp_path):
    """A pattern of 121 characters would never finish matching."""
    module = "layers." + "1" * 300 + ".q"
    assert ModulePatterns({r"\d+" * 8 + "x": 1, ".*" * 8 + "x": 1}).value(module, 0) == 0
    with pytest.raises(ValueError, match="90 times"):
        ModulePatterns({".*" * 90: 1})
    with pytest.raises(ValueError, match="60 patterns"):
        ModulePatterns({rf"{place}\d+": 1 for place in range(60)})
    names = {f"model.layers.{place}.self_attn.q_proj": place for place in range(700)}
    patterns = ModulePatterns(names)
    assert [patterns.value(name, None) for name in names] == list(range(700))


@pytest.mark.parametrize("flag", [False, True])
def test_each_layer_has_its_own_way_round(flag, tmp_path):
    """GPT-2 with a head would be merged wrongly: PEFT stores one orientation flag, that of the last module."""
    settings = {"vocab_size": 9, "n_embd": 5, "n_layer": 1, "n_head": 1, "tie_word_embeddings": False}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).save_pretrained(tmp_path / "base")
    base, block = open_checkpoint(tmp_path / "base"), "transformer.h.0.attn"
    shapes = {f"{block}.c_attn": (5, 15), f"{block}.c_proj": (5, 5), "lm_head": (9, 5)}
    tensors, products = {}, {}
    for module, shape in shapes.items():
        transposed = module.startswith(block)
        of_module, product = factors(module, *(reversed(shape) if transposed else shape))
        tensors |= of_module
        products[module] = product.T if transposed else product
    checkpoint = open_checkpoint(lora(tmp_path / "lora", tensors, fan_in_fan_out=flag), base)
    for module, product in products.items():
        check_delta(checkpoint, base, f"{module}.weight", 2 * product)


@pytest.mark.parametrize("strange", [{"block.proj": (5, 15)}, {"a.proj": (5, 15), "b.fc": (7, 5)}, {}])
def test_a_square_layer_that_nothing_explains_is_refused(strange, tmp_path):
    """A square matrix could be merged transposed without an error."""
    shapes = {"block.c_proj" if "block.proj" in strange else "dense": (5, 5), **strange}
    biases = {f"{module}.bias": drawn(7 if shape == (7, 5) else shape[1]) for module, shape in shapes.items()}
    base = open_checkpoint(file_of(tmp_path / "base", {f"{m}.weight": drawn(*s) for m, s in shapes.items()} | biases))
    square = next(iter(shapes))
    folder = lora(tmp_path / "lora", factors(square, 5, 5)[0], fan_in_fan_out=not strange)
    assert f"{square}.weight is square" in refusal(lambda: open_checkpoint(folder, base))


@pytest.mark.parametrize("kind", ["gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "captioner"])
def test_square_layers_of_transformers_are_what_their_classes_say(kind, tmp_path):
    """A transformers model would be merged with some layers transposed."""
    import transformers
    from transformers.pytorch_utils import Conv1D

    if kind == "captioner":
        decoder = transformers.GPT2Config(n_layer=1, add_cross_attention=True)
        vit = transformers.ViTConfig(num_hidden_layers=1)
        config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vit, decoder)
        of_class = transformers.VisionEncoderDecoderModel
    else:
        of_class = transformers.ClvpModelForConditionalGeneration if kind == "clvp" else transformers.AutoModel
        config = transformers.CONFIG_MAPPING[kind]()
    with torch.device("meta"):
        model = of_class(config) if of_class is not transformers.AutoModel else of_class.from_config(config)
    tensors = {name: TensorInfo("F32", tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
    config.architectures = [type(model).__name__]
    config.save_pretrained(tmp_path)
    base = Checkpoint(title="base", tensors=tensors, companions={"config.json": tmp_path / "config.json"})
    layers = {
        name: isinstance(module, Conv1D)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and len(set(module.weight.shape)) == 1
    }
    assert True in layers.values() or kind == "clvp"
    assert {name: inputs_first(f"{name}.weight", base, True) for name in layers} == layers


def test_transposed_layers_embeddings_and_whole_tensors_are_read(tmp_path):
    """GPT-2's layers, new embeddings and trained heads would be refused, or merged with other values than peft's."""
    settings = {"vocab_size": 9, "n_embd": 6, "n_layer": 1, "n_head": 1, "tie_word_embeddings": False}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).save_pretrained(tmp_path / "base")
    shutil.copytree(tmp_path / "base", tmp_path / "moved")  # to a LoRA, another base
    base, moved = (open_checkpoint(tmp_path / name) for name in ("base", "moved"))
    block = "transformer.h.0.attn"
    tensors, product = factors(f"{block}.c_attn", 18, 6)
    tensors[f"{block}.c_attn.bias"] = drawn(18, seed=5)
    tensors[f"{block}.c_proj.modules_to_save.weight"] = drawn(6, 6, seed=7).half()
    tensors["transformer.wte.lora_embedding_A"] = drawn(4, 9)
    tensors["transformer.wte.lora_embedding_B"] = drawn(6, 4, seed=2)
    tensors["transformer.wte.base_layer.weight"] = drawn(9, 6, seed=3)
    folder = lora(tmp_path / "lora", tensors, fan_in_fan_out=True)
    a, b, table = (
        tensors[f"transformer.wte.{n}"] for n in ("lora_embedding_A", "lora_embedding_B", "base_layer.weight")
    )
    expected = {name: base.float32(name) for name in base.names} | {
        f"{block}.c_attn.weight": base.float32(f"{block}.c_attn.weight") + 2 * product.T,
        f"{block}.c_attn.bias": tensors[f"{block}.c_attn.bias"],
        f"{block}.c_proj.weight": tensors[f"{block}.c_proj.modules_to_save.weight"],
        "transformer.wte.weight": table + 2 * (b @ a).T,
    }
    task = {"cars": folder}
    out = tallmasks.merge_checkpoints(
        tmp_path / "base", task, tmp_path / "m", method="task_arithmetic", scaling_coefficient=1
    )
    masks = {"mask_lambda": 0, "bits": 8}
    bundle = tallmasks.compress(tmp_path / "base", task, tmp_path / "b", method="task_arithmetic", **masks)
    merged, restored = open_checkpoint(out), tallmasks.load_bundle(bundle).arrays("cars")
    own, on_moved = (open_checkpoint(folder, one) for one in (base, moved))
    for name, values in expected.items():
        summed = [base.float32(name) + delta(one, base, name) for one in (own, on_moved)]
        for found in (own.float32(name), merged.float32(name), *summed):
            np.testing.assert_allclose(found, values, atol=1e-5)
        np.testing.assert_allclose(restored[name], values, atol=0.05)


def test_small_deltas_of_half_models_are_not_rounded_away(tmp_path):
    """A delta below the last bit of a bfloat16 weight would vanish from the task vector, or count as rounding error."""
    base = base_of(tmp_path / "base", dtype=torch.bfloat16)
    tensors, product = factors("layers.0.q", 6, 5)
    tensors["layers.0.q.lora_B.weight"] *= 1e-5
    folder, name = lora(tmp_path / "lora", tensors), "layers.0.q.weight"
    out, of_base = tmp_path / "out.safetensors", tmp_path / "base/model.safetensors"
    tallmasks.merge_checkpoints(of_base, {"cars": folder}, out, method="iso_c", dtype="float32")
    singular = np.linalg.svd(open_checkpoint(out).float32(name) - base.float32(name), compute_uv=False)
    np.testing.assert_allclose(singular[:4], singular[0], rtol=0.05)  # iso_c makes those of the delta equal
    checkpoint = open_checkpoint(folder, base)
    np.testing.assert_allclose(delta(checkpoint, base, "layers.0.q.weight"), 2e-5 * product, rtol=1e-4, atol=1e-10)
    values = torch.from_numpy(checkpoint.piece("layers.0.q.weight", 0, 30)).bfloat16()
    assert bytes(checkpoint.stored("layers.0.q.weight", 0, 30)) == values.view(torch.uint8).numpy().tobytes()


CONFIGS = {
    "use_dora": ({"use_dora": True}, "merge_and_unload"),
    "another kind": ({"peft_type": "IA3"}, "'IA3'"),
    "pissa": ({"init_lora_weights": "pissa"}, "'pissa'"),
    "rank": ({"r": 5}, "rank [4]"),
    "alpha": ({"lora_alpha": None}, "lora_alpha"),
    "trap": ({"rank_pattern": {"(a+)+$": 3}}, "rank_pattern"),
    "no truth": ({"use_rslora": "yes"}, "use_rslora"),
    "no number": ({"alpha_pattern": {"q": float("inf")}}, "alpha_pattern.q"),
    "beyond floats": ({"rank_pattern": {"q": 10**400}}, "rank_pattern.q"),
    "letters": ({"modules_to_save": "head"}, "modules_to_save"),
}
TENSORS = {
    "half": ({"layers.0.q.lora_B.weight": None}, "layers.0.q is missing"),
    "other": ({"layers.0.q.lora_C.weight": torch.ones(6)}, "layers.0.q.lora_C.weight"),
    "absent": ({"head.lora_A.weight": torch.ones(4, 5), "head.lora_B.weight": torch.ones(6, 4)}, "head.weight"),
    "shape": ({"layers.0.q.lora_A.weight": torch.ones(4, 7)}, "is 6 x 7"),
    "twice": ({"layers.0.q.lora_A": torch.ones(4, 5)}, "layers.0.q.lora_A.weight"),
    "copied twice": ({"embed.weight": torch.ones(9, 5), "embed.modules_to_save.weight": torch.zeros(9, 5)}, "embed"),
    "of a model without a name": ({"embed.weight": torch.ones(9, 5)}, "embed.weight"),
    "conv": ({"layers.0.q.lora_A.weight": torch.ones(4, 5, 3, 3)}, "convolution"),
}


@pytest.mark.parametrize("case", [*CONFIGS, *TENSORS])
def test_what_is_no_plain_lora_is_refused(case, tmp_path):
    """A merge would silently lack a part of the adapter."""
    tensors, _ = factors("layers.0.q", 6, 5)
    config, said = CONFIGS.get(case, ({}, ""))
    changes, said = TENSORS.get(case, ({}, said))
    tensors = {name: tensor for name, tensor in {**tensors, **changes}.items() if tensor is not None}
    folder, base = lora(tmp_path / "lora", tensors, **config), base_of(tmp_path / "base")
    assert said in refusal(lambda: open_checkpoint(folder, base))


def test_a_whole_tensor_of_another_shape_does_not_fit(tmp_path):
    """An adapter on an enlarged vocabulary would be merged into the first rows, or end in a traceback."""
    base, folder = base_of(tmp_path / "base"), lora(tmp_path / "lora", {"embed.weight": torch.ones(10, 5)})
    with pytest.raises(TallmasksError, match=r"cars: .*embed.weight .*\[10, 5\].*\[9, 5\]"):
        check_fit(base, {"cars": open_checkpoint(folder, base)})


def test_a_folder_that_is_no_whole_lora_is_refused(tmp_path):
    """The user would not know that a file or the base is missing."""
    tensors, _ = factors("layers.0.q", 6, 5)
    folder, base = lora(tmp_path / "lora", tensors, base_model_name_or_path="org/base"), base_of(tmp_path / "base")
    assert "org/base" in refusal(lambda: open_checkpoint(folder))
    both = lora(tmp_path / "both", tensors)
    file_of(both, tensors)
    assert "both" in refusal(lambda: open_checkpoint(both, base))
    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    weights.rename(folder / "moved")
    assert "adapter_model.safetensors" in refusal(lambda: open_checkpoint(folder, base))
    (folder / "moved").rename(weights)
    config.write_text("[1]")
    assert "adapter_config.json" in refusal(lambda: open_checkpoint(folder, base))
    config.unlink()
    assert "adapter_config.json" in refusal(lambda: open_checkpoint(folder, base))


EMBEDDING = "transformer.word_embeddings"


def language_model(folder, head=None):
    """A folder with an embedding, to which the head is tied; or with a head of its own. A tied head can be stored too:
    in the embedding's storage, or as a copy."""
    table = drawn(9, 5)
    stored = {"shared": table, "copy": table.clone(), "own": drawn(9, 5, seed=9)}
    heads = {"lm_head.weight": stored[head]} if head else {}
    tensors = {f"{EMBEDDING}.weight": table, "transformer.ln_f.weight": drawn(5), **heads}
    settings = {"vocab_size": 9, "hidden_size": 5, "tie_word_embeddings": head != "own"}
    file = "pytorch_model.bin" if head == "shared" else "model.safetensors"
    return open_checkpoint(bloom(folder, tensors, file, **settings))


def test_an_embedding_that_was_trained_whole_does_not_move_the_head(tmp_path):
    """PEFT does not change the tied head, so the merged model would have other logits."""
    tied = language_model(tmp_path / "tied")
    apart = language_model(tmp_path / "apart", "own")
    trained = {f"{EMBEDDING}.weight": drawn(9, 5, seed=1)}
    copied = lora(tmp_path / "copied", trained, modules_to_save=["word_embeddings"])
    assert "ties" in refusal(lambda: open_checkpoint(copied, tied))
    checkpoint = open_checkpoint(copied, apart)
    assert delta(checkpoint, apart, f"{EMBEDDING}.weight").all()
    assert not delta(checkpoint, apart, "lm_head.weight").any()
    ensured = {"modules_to_save": ["word_embeddings"], "ensure_weight_tying": True}
    one = lora(tmp_path / "one", trained, **ensured)  # of a model whose tie peft does not see
    assert "ties" in refusal(lambda: open_checkpoint(one, tied))
    both = {**trained, "lm_head.weight": trained[f"{EMBEDDING}.weight"].clone()}
    for number, (tensors, config) in enumerate(((both, ensured), (both, {}), (trained, {}))):  # both change
        adapter = open_checkpoint(lora(tmp_path / f"both{number}", tensors, **config), tied)
        assert delta(adapter, tied, f"{EMBEDDING}.weight").all() and adapter.names == tied.names
    apart_trained = lora(tmp_path / "two", {**both, "lm_head.weight": drawn(9, 5, seed=2)}, **ensured)
    assert "lm_head.weight" in refusal(lambda: open_checkpoint(apart_trained, tied))


@pytest.mark.parametrize("head", [None, "shared", "copy"])
def test_a_tied_tensor_is_one_however_the_base_stores_it(head, tmp_path):
    """A trained embedding was dropped without a word if torch.save had stored the base."""
    base = language_model(tmp_path / "base", head)
    for name in (f"{EMBEDDING}.weight", "lm_head.weight"):
        tensors = {name: drawn(9, 5, seed=1)}
        saved = lora(tmp_path / name, tensors, modules_to_save=["word_embeddings", "lm_head"])
        assert "ties" in refusal(lambda saved=saved: open_checkpoint(saved, base))
    a, b = drawn(4, 5), drawn(9, 4)
    of_head = {"lm_head.lora_A.weight": a, "lm_head.lora_B.weight": b}
    with pytest.warns(TallmasksWarning, match="tied to another tensor"):
        checkpoint = open_checkpoint(lora(tmp_path / "head", of_head), base)
    for name in base.names:
        expected = 2 * (b.double() @ a.double()).numpy() if base.info(name).shape == (9, 5) else np.zeros(5)
        check_delta(checkpoint, base, name, expected)


def test_a_delta_on_both_names_of_a_tied_tensor_counts_once(tmp_path):
    """Adapters with peft's `ensure_weight_tying`, which store the embedding and its tied head, were refused."""
    tied = language_model(tmp_path / "tied")
    a, b = drawn(4, 9), drawn(5, 4, seed=1)
    of_embedding = {f"{EMBEDDING}.lora_embedding_A": a, f"{EMBEDDING}.lora_embedding_B": b}
    of_head = {"lm_head.lora_A.weight": b.T.contiguous(), "lm_head.lora_B.weight": a.T.contiguous()}
    both = open_checkpoint(lora(tmp_path / "both", of_embedding | of_head, ensure_weight_tying=True), tied)
    check_delta(both, tied, f"{EMBEDDING}.weight", 2 * (b.double() @ a.double()).T.numpy())
    of_head["lm_head.lora_B.weight"] = drawn(9, 4, seed=7)
    other = lora(tmp_path / "other", of_embedding | of_head)
    assert "lm_head.weight" in refusal(lambda: open_checkpoint(other, tied))


def test_a_delta_on_a_tied_embedding_is_merged_and_said(tmp_path, recwarn):
    """The merged model would differ from PEFT's unmerged one, where the tied head is unchanged, without a warning."""
    pair = {"lora_embedding_A": drawn(4, 9), "lora_embedding_B": drawn(5, 4, seed=1)}
    folder = lora(tmp_path / "lora", {f"{EMBEDDING}.{name}": tensor for name, tensor in pair.items()})
    tied = language_model(tmp_path / "tied")
    with pytest.warns(TallmasksWarning, match="word_embeddings.weight"):
        checkpoint = open_checkpoint(folder, tied)
    expected = 2 * (pair["lora_embedding_B"].double() @ pair["lora_embedding_A"].double()).T.numpy()
    check_delta(checkpoint, tied, f"{EMBEDDING}.weight", expected)
    recwarn.clear()
    open_checkpoint(folder, language_model(tmp_path / "apart", "own"))
    tensors = {"word_embeddings.weight": drawn(9, 5), "ln_f.weight": drawn(5)}
    settings = {"vocab_size": 9, "hidden_size": 5, "architectures": ["BloomModel"]}
    encoder = open_checkpoint(bloom(tmp_path / "encoder", tensors, **settings))
    tensors = {f"word_embeddings.{name}": tensor for name, tensor in pair.items()}
    open_checkpoint(lora(tmp_path / "encoder_lora", tensors, task_type="SEQ_CLS"), encoder)
    assert not recwarn.list
    weight = drawn(6, 5)
    base = open_checkpoint(file_of(tmp_path / "both", {"a.weight": weight, "b.weight": weight}, "base.pt"))
    for module in "ab":  # one tensor under both names, whichever the adapter has
        tensors, product = factors(module, 6, 5)
        with pytest.warns(TallmasksWarning, match="a.weight"):
            checkpoint = open_checkpoint(lora(tmp_path / module, tensors, r=4, lora_alpha=4), base)
        check_delta(checkpoint, base, "a.weight", product)


def test_adapters_that_are_no_plain_lora_are_named(tmp_path):
    """Soft prompts were to be merged with a function that they lack, and a saved state dict was called unsupported."""
    base = base_of(tmp_path / "base")
    prompt = lora(tmp_path / "prompt", {"prompt_embeddings": drawn(4, 5)}, peft_type="PREFIX_TUNING")
    message = refusal(lambda: open_checkpoint(prompt, base))
    assert "PREFIX_TUNING" in message and "merge_and_unload" not in message
    tensors, _ = factors("layers.0.q", 6, 5)
    named = {name.replace(".weight", ".mine.weight"): tensor for name, tensor in tensors.items()}
    assert "the adapter mine" in refusal(lambda: open_checkpoint(lora(tmp_path / "named", named), base))
