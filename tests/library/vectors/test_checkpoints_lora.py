"""PEFT LoRA folders: their deltas, and one-line errors for unsupported ones."""

import shutil

import numpy as np
import pytest
import torch
import transformers

import tallmasks
from small_checkpoints import bloom, file_of, lora, refusal
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import check_fit
from tallmasks.vectors.checkpoints.lora_folders import inputs_first
from tallmasks.vectors.checkpoints.opening import open_checkpoint

pytestmark = pytest.mark.xdist_group("library")  # one process with transformers for all of these

NAMES = {"layers.0.q.weight": (6, 5), "layers.1.q.weight": (6, 5), "embed.weight": (9, 5), "layers.0.q.bias": (6,)}


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def base_of(folder, dtype=torch.float32):
    return open_checkpoint(file_of(folder, {name: drawn(*shape).to(dtype) for name, shape in NAMES.items()}))


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
def test_a_delta_is_scale_times_b_a(file, tmp_path):
    """A LoRA would be merged at another strength, or onto another layer."""
    base = base_of(tmp_path / "base")
    tensors, product = factors("layers.0.q", 6, 5)
    checkpoint = open_checkpoint(lora(tmp_path / "lora", tensors, file, r=4, lora_alpha=6), base)
    check_delta(checkpoint, base, "layers.0.q.weight", 1.5 * product)
    assert not delta(checkpoint, base, "layers.1.q.weight").any()
    assert set(checkpoint.files) == {file, "adapter_config.json"} and checkpoint.layout == base.layout


def test_every_option_of_the_scale_counts(tmp_path):
    """Adapters with patterns or rank-stabilised scaling would be wrong by a factor, or at another layer's strength."""
    base = base_of(tmp_path / "base")
    first, one = factors("layers.0.q", 6, 5, rank=4)
    second, two = factors("layers.1.q", 6, 5, rank=3)
    patterns = {"rank_pattern": {"x|(layers.1.q|k)": 3}, "alpha_pattern": {"ers.0.q": 1, r".*\.0\.q": 10, "q": 8}}
    for number, (config, scales) in enumerate(
        [({}, (10 / 4, 8 / 3)), ({"use_rslora": True}, (10 / 2, 8 / np.sqrt(3)))]
    ):
        folder = lora(tmp_path / f"{number}", {**first, **second}, r=4, lora_alpha=8, **patterns, **config)
        checkpoint = open_checkpoint(folder, base)
        check_delta(checkpoint, base, "layers.0.q.weight", scales[0] * one)
        check_delta(checkpoint, base, "layers.1.q.weight", scales[1] * two)


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


@pytest.mark.parametrize("kind", ["gpt2", "imagegpt", "decision_transformer"])
def test_square_layers_of_transformers_are_what_their_classes_say(kind, tmp_path):
    """A transformers model would be merged with some layers transposed."""
    from transformers.pytorch_utils import Conv1D

    config = transformers.CONFIG_MAPPING[kind]()
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    tensors = {name: TensorInfo("F32", tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
    config.architectures = [type(model).__name__]
    config.save_pretrained(tmp_path)
    base = Checkpoint(title="base", tensors=tensors, companions={"config.json": tmp_path / "config.json"})
    layers = {
        name: isinstance(module, Conv1D)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and len(set(module.weight.shape)) == 1
    }
    assert True in layers.values()
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
    "trap": ({"rank_pattern": {"(a+": 3}}, "rank_pattern"),
    "no truth": ({"use_rslora": "yes"}, "use_rslora"),
    "no number": ({"alpha_pattern": {"q": float("inf")}}, "lora_alpha"),
    "prompts": ({"peft_type": "PREFIX_TUNING"}, "PREFIX_TUNING"),
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
    "named": ({"layers.0.q.lora_A.mine.weight": torch.ones(4, 5)}, "lora_A.mine"),
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


@pytest.mark.parametrize("head", [None, "shared", "copy"])
def test_an_adapter_on_a_tied_tensor_is_refused(head, tmp_path):
    """The merged model would have other logits than the adapter: PEFT changes only one of the two tied tensors. Or the
    change would be dropped without a word, depending on how the base is stored."""
    tied, apart = language_model(tmp_path / "tied", head), language_model(tmp_path / "apart", "own")
    trained = {f"{EMBEDDING}.weight": drawn(9, 5, seed=1)}
    of_embedding = {f"{EMBEDDING}.lora_embedding_A": drawn(4, 9), f"{EMBEDDING}.lora_embedding_B": drawn(5, 4)}
    cases = {
        "replaced": trained,
        "replaced head": {"lm_head.weight": drawn(9, 5, seed=1)},
        "both": {**trained, "lm_head.weight": trained[f"{EMBEDDING}.weight"].clone()},
        "delta": of_embedding,
        "delta of the head": factors("lm_head", 9, 5)[0],
    }
    for name, tensors in cases.items():
        folder = lora(tmp_path / name, tensors, modules_to_save=["word_embeddings", "lm_head"])
        message = refusal(lambda folder=folder: open_checkpoint(folder, tied))
        assert "merge_and_unload" in message and ("tied to another" in message or name == "both"), name
        checkpoint = open_checkpoint(folder, apart)
        for one in (f"{EMBEDDING}.weight", "lm_head.weight"):
            is_changed = any(key.startswith(one.removesuffix("weight")) for key in tensors)
            assert delta(checkpoint, apart, one).any() == is_changed, name


def test_an_adapter_on_one_of_two_names_of_a_tensor_is_refused(tmp_path):
    """A tensor that torch.save stored under two names would be changed under one, or twice."""
    weight = drawn(6, 5)
    base = open_checkpoint(file_of(tmp_path / "both", {"a.weight": weight, "b.weight": weight}, "base.pt"))
    for modules in ("a", "b", "ab"):
        tensors = {name: tensor for module in modules for name, tensor in factors(module, 6, 5)[0].items()}
        folder = lora(tmp_path / modules, tensors)
        assert "merge_and_unload" in refusal(lambda folder=folder: open_checkpoint(folder, base))
