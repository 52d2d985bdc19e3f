"""PEFT LoRA folders: their deltas, and one-line errors for unsupported ones."""

import shutil

import numpy as np
import pytest
import torch
import transformers

import tallmasks
from small_checkpoints import bloom, file_of, lora, refusal
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
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


def test_square_layers_are_what_their_classes_say(tmp_path):
    """A transformers model would be merged with some layers transposed; or another one, by a guess."""
    from transformers.pytorch_utils import Conv1D

    square, _ = factors("dense", 5, 5)
    unknown = open_checkpoint(file_of(tmp_path / "unknown", {"dense.weight": drawn(5, 5), "dense.bias": drawn(5)}))
    folder = lora(tmp_path / "lora", square, fan_in_fan_out=True)
    assert "dense.weight is square" in refusal(lambda: open_checkpoint(folder, unknown))
    config = transformers.CONFIG_MAPPING["decision_transformer"]()
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


@pytest.mark.parametrize("flag", [False, True])  # PEFT stores one, that of the last module
def test_transposed_layers_embeddings_and_whole_tensors_are_read(flag, tmp_path):
    """GPT-2's layers, new embeddings and trained heads would be refused, or merged with other values than peft's."""
    settings = {"vocab_size": 9, "n_embd": 6, "n_layer": 1, "n_head": 1, "tie_word_embeddings": False}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).save_pretrained(tmp_path / "base")
    shutil.copytree(tmp_path / "base", tmp_path / "moved")  # to a LoRA, another base
    base, moved = (open_checkpoint(tmp_path / name) for name in ("base", "moved"))
    block = "transformer.h.0.attn"
    tensors, product = factors(f"{block}.c_attn", 18, 6)
    of_head, head = factors("lm_head", 9, 6)
    tensors |= of_head
    tensors[f"{block}.c_attn.bias"] = drawn(18, seed=5)
    tensors[f"{block}.c_proj.modules_to_save.weight"] = drawn(6, 6, seed=7).half()
    tensors["transformer.wte.lora_embedding_A"] = drawn(4, 9)
    tensors["transformer.wte.lora_embedding_B"] = drawn(6, 4, seed=2)
    tensors["transformer.wte.base_layer.weight"] = drawn(9, 6, seed=3)
    folder = lora(tmp_path / "lora", tensors, fan_in_fan_out=flag)
    a, b, table = (
        tensors[f"transformer.wte.{n}"] for n in ("lora_embedding_A", "lora_embedding_B", "base_layer.weight")
    )
    expected = {name: base.float32(name) for name in base.names} | {
        f"{block}.c_attn.weight": base.float32(f"{block}.c_attn.weight") + 2 * product.T,
        f"{block}.c_attn.bias": tensors[f"{block}.c_attn.bias"],
        f"{block}.c_proj.weight": tensors[f"{block}.c_proj.modules_to_save.weight"],
        "transformer.wte.weight": table + 2 * (b @ a).T,
        "lm_head.weight": base.float32("lm_head.weight") + 2 * head,
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
    assert bytes(checkpoint.raw_bytes("layers.0.q.weight", 0, 30)) == values.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("start", [False, None, "Gaussian", "EVA", "orthogonal", "mica", "MiCA"])
def test_an_adapter_whose_start_leaves_the_base_unchanged_is_read(start, tmp_path):
    """It would be refused for a reason that is false."""
    tensors, product = factors("layers.0.q", 6, 5)
    folder, base = lora(tmp_path / "lora", tensors, init_lora_weights=start), base_of(tmp_path / "base")
    check_delta(open_checkpoint(folder, base), base, "layers.0.q.weight", 2 * product)


REFUSED = {
    "use_dora": ({"use_dora": True}, {}, "merge_and_unload"),
    **{
        start: ({"init_lora_weights": start}, {}, "does not change the base's weights")
        for start in ("pissa", "PiSSA_niter_4", "OLoRA", "corda", "loftq", "lora_ga", "of a later peft")
    },
    "half": ({}, {"layers.0.q.lora_B.weight": None}, "layers.0.q is missing"),
    "absent": ({}, {"a.lora_A.weight": torch.ones(4, 5), "a.lora_B.weight": torch.ones(6, 4)}, "a.weight"),
    "shape": ({}, {"layers.0.q.lora_A.weight": torch.ones(4, 7)}, "is 6 x 7"),
    "conv": ({}, {"layers.0.q.lora_A.weight": torch.ones(4, 5, 3, 3)}, "convolution"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_plain_lora_is_refused(case, tmp_path):
    """A merge would silently lack a part of the adapter."""
    config, changes, said = REFUSED[case]
    tensors = factors("layers.0.q", 6, 5)[0] | changes
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    folder, base = lora(tmp_path / "lora", tensors, **config), base_of(tmp_path / "base")
    assert said in refusal(lambda: open_checkpoint(folder, base))


def test_a_folder_that_is_no_whole_lora_is_refused(tmp_path):
    """The user would not know that a file or the base is missing."""
    tensors, _ = factors("layers.0.q", 6, 5)
    folder, base = lora(tmp_path / "lora", tensors, base_model_name_or_path="org/base"), base_of(tmp_path / "base")
    assert "org/base" in refusal(lambda: open_checkpoint(folder))
    (folder / "adapter_model.safetensors").unlink()
    assert "adapter_model.safetensors" in refusal(lambda: open_checkpoint(folder, base))


@pytest.mark.parametrize("head", [None, "shared", "copy"])
def test_an_adapter_on_a_tied_tensor_is_refused(head, tmp_path):
    """The merged model would have other logits than the adapter: PEFT changes only one of the two tied tensors. Or the
    change would be dropped without a word, depending on how the base is stored."""
    embedding, table = "transformer.word_embeddings", drawn(9, 5)
    heads = {"lm_head.weight": table if head == "shared" else table.clone()} if head else {}
    tensors = {f"{embedding}.weight": table, "transformer.ln_f.weight": drawn(5), **heads}
    file = "pytorch_model.bin" if head == "shared" else "model.safetensors"
    base = open_checkpoint(bloom(tmp_path / "base", tensors, file, vocab_size=9, hidden_size=5))
    cases = {
        "replaced": {f"{embedding}.weight": drawn(9, 5, seed=1)},
        "replaced head": {"lm_head.weight": drawn(9, 5, seed=1)},
        "delta": {f"{embedding}.lora_embedding_A": drawn(4, 9), f"{embedding}.lora_embedding_B": drawn(5, 4)},
        "delta of the head": factors("lm_head", 9, 5)[0],
    }
    for name, trained in cases.items():
        folder = lora(tmp_path / name, trained, modules_to_save=["word_embeddings", "lm_head"])
        message = refusal(lambda folder=folder: open_checkpoint(folder, base))
        assert "merge_and_unload" in message and "tied to another" in message, name
