"""Task bundles: every task's weights, bit for bit, and switching a live module between tasks."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from rich.filesize import decimal
from safetensors.torch import load_file, save_file

import tallmasks
import task_bundles
from small_models import made as made_model
from small_models import moved
from strategies import no_deadline
from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.bundle_writer import BundleContents, new_bundle
from tallmasks.bundles.codings import Dense, Levels
from tallmasks.bundles.verification import verify_bundle
from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import torch_dtypes
from tallmasks.vectors.checkpoints.float_bytes import rounded
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.packed_bits import unpacked
from task_bundles import TASKS, all_same, expected, make, same_bits

FORMS = ("float32", "bfloat16", "float16", "2 bits", "3 bits", "4 bits", "8 bits")


@pytest.fixture(scope="module", params=FORMS)
def of_dtype(request, tmp_path_factory):
    """A bundle for every dtype of the merged vector."""
    return make(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"), "3 bits")


class Everything(torch.nn.Module):
    """A module with the tensors of the small model as parameters and buffers; the bias is tied."""

    def __init__(self, state, dtype=None):
        super().__init__()
        self.a = torch.nn.Module()
        self.twin = torch.nn.Module()
        for name, tensor in state.items():
            place, _, leaf = name.rpartition(".")
            owner = self.get_submodule(place)
            values = (tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor).clone()
            if name in ("scalar", "steps", "frozen"):
                owner.register_buffer(leaf, values)
            else:
                owner.register_parameter(leaf, torch.nn.Parameter(values, requires_grad=name != "short"))
        self.twin.bias = self.a.bias
        self.register_buffer("cache", torch.ones(3), persistent=False)


def weights_of(module):
    return {name: tensor for name, tensor in module.state_dict().items() if not name.startswith("twin")}


def test_each_task_follows_the_formula_in_any_piece(of_dtype):
    """A task's model would not be theta_0 + scale * (mask * tau_MTL), rounded once."""
    bundle = load_bundle(of_dtype.folder, of_dtype.base_file)
    assert bundle.tasks == TASKS
    for task in TASKS:
        assert all_same(bundle.state_dict(task), expected(of_dtype, task))
        assert all_same(dict(bundle.named_tensors(task)), expected(of_dtype, task))
        assert bundle.density(task) == np.concatenate([mask.ravel() for mask in of_dtype.masks[task].values()]).mean()
        for name in of_dtype.merged:
            whole = np.asarray(task_bundles.update(of_dtype, task, name)).reshape(-1)
            for start, stop in ((0, None), (1, None), (3, 12), (8, 9), (5, 5)):
                found = bundle.update(task, name, start, stop)
                assert found.dtype == np.float32
                np.testing.assert_array_equal(found.view(np.uint32), whole[start:stop].view(np.uint32))
    np.testing.assert_array_equal(bundle.update("mnist", "frozen"), np.zeros(16, np.float32))


def test_arrays_are_the_same_weights(tmp_path):
    """Users without torch would get different weights."""
    forms = {name: form for name, form in task_bundles.FORMS.items() if form[0] != torch.bfloat16}
    made = make(tmp_path / "numpy", forms=forms)
    found = load_bundle(made.folder, made.base_file).arrays("mnist")
    for name, tensor in expected(made, "mnist").items():
        assert same_bits(torch.from_numpy(found[name]), tensor)
    other = make(tmp_path / "bfloat16")
    with pytest.raises(TallmasksError, match=r"BF16.*state_dict"):
        load_bundle(other.folder, other.base_file).arrays("mnist")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_module_switches_between_tasks_and_back(of_dtype, device, monkeypatch):
    """After some switches the model would have drifted, or trained weights would be lost."""
    monkeypatch.setattr("tallmasks.bundles.module_writing.GROUP", 64)  # several groups of one dtype
    bundle = load_bundle(of_dtype.folder, of_dtype.base_file, device)
    module = Everything(of_dtype.base)
    addresses = {name: tensor.data_ptr() for name, tensor in module.named_parameters()}
    for task in (TASKS[0], TASKS[1], TASKS[0], TASKS[2], TASKS[2]):
        bundle.apply_(module, task)
        assert all_same(weights_of(module), expected(of_dtype, task))
    bundle.restore_(module)
    assert all_same(weights_of(module), of_dtype.base)
    assert {name: tensor.data_ptr() for name, tensor in module.named_parameters()} == addresses
    assert module.twin.bias is module.a.bias and not module.short.requires_grad and module.a.bias.requires_grad


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_switch_between_forward_and_backward_is_an_error(made, device):
    """Gradients would be computed from one task's activations and another task's weights, in silence."""
    bundle, module = load_bundle(made.folder, made.base_file, device), Everything(made.base)
    turned = torch.nn.Parameter(module.wide.detach().T.contiguous().T)  # not contiguous, so written by torch
    for weight in (module.wide, turned):
        module.wide = weight
        loss = (torch.ones(1, 9, requires_grad=True) @ weight).sum()
        bundle.apply_(module, "mnist")
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    with torch.inference_mode():
        bundle.apply_(Everything(made.base), "mnist")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_without_a_base_the_module_itself_is_theta_0(made, device):
    """A bundle without its base could not be used, or weights would drift with every switch."""
    manifest = json.loads((made.folder / "bundle.json").read_text())
    assert manifest["base"]["path"] == str(made.base_file)
    hidden = made.base_file.rename(made.base_file.with_suffix(".hidden"))
    try:
        bundle = load_bundle(made.folder, device=device)
        with pytest.raises(TallmasksError, match=r"--base"):
            bundle.state_dict("mnist")
        module = Everything(made.base)
        bundle.restore_(module)
        for task in (TASKS[1], TASKS[0], TASKS[1]):
            bundle.apply_(module, task)
            assert all_same(weights_of(module), expected(made, task))
        pickle.loads(pickle.dumps(bundle)).apply_(module, TASKS[0])  # as in a worker
        assert all_same(weights_of(module), expected(made, TASKS[0]))
        bundle.restore_(module)
        assert all_same(weights_of(module), made.base)
    finally:
        hidden.rename(made.base_file)


def test_the_recorded_base_is_found_and_checked(tmp_path):
    """A bundle would be added to any model that has replaced its base."""
    made = make(tmp_path)
    with pytest.raises(TallmasksError, match="'gpu'"):
        load_bundle(made.folder, device="gpu")
    assert all_same(load_bundle(made.folder).state_dict("mnist"), expected(made, "mnist"))
    save_file({name: tensor + 1 for name, tensor in made.base.items()}, made.base_file)
    for base in (None, made.base_file):
        with pytest.raises(TallmasksError, match=r"base\.safetensors: .*a\.bias"):
            load_bundle(made.folder, base).state_dict("mnist")
    assert len(verify_bundle(made.folder)) == 1
    save_file({name: tensor for name, tensor in made.base.items() if name != "wide"}, made.base_file)
    with pytest.raises(TallmasksError, match="wide"):
        load_bundle(made.folder, made.base_file)


def test_the_module_is_checked_to_be_the_base(tmp_path, monkeypatch):
    """A bundle would be added to a model that is not its base, without a warning."""
    monkeypatch.chdir(tmp_path)
    models = {}
    for name, seed in {"base": 0, "dtd": 1, "other": 2}.items():
        models[name] = moved(made_model("ViTForImageClassification"), seed)
        models[name].save_pretrained(name)
    tallmasks.compress("base", {"dtd": "dtd"}, "bundle", method="task_arithmetic", mask_lambda=0)
    expected = load_bundle("bundle").state_dict("dtd", like=models["dtd"])
    Path("base").rename("published")
    Path("other").rename("base")  # another model under the base's name
    for wrong in (models["other"], models["dtd"]):
        before = {name: tensor.clone() for name, tensor in wrong.state_dict().items()}
        bundle = load_bundle("bundle")
        for work in (lambda b=bundle, w=wrong: b.apply_(w, "dtd"), lambda b=bundle, w=wrong: b.restore_(w)):
            with pytest.raises(TallmasksError, match=r"base.*classifier\.bias"):
                work()
        assert all_same(wrong.state_dict(), before)
    with pytest.raises(TallmasksError, match=r"base.*classifier\.bias"):
        load_bundle("bundle", "base").apply_(copy.deepcopy(models["base"]), "dtd")
    half = copy.deepcopy(models["base"]).half()
    with pytest.raises(TallmasksError, match=r"F16.*F32.* module_is_base=True"):
        load_bundle("bundle").apply_(half, "dtd")
    load_bundle("bundle").apply_(half, "dtd", module_is_base=True)
    assert all(torch.allclose(half.state_dict()[name], tensor.half(), atol=2e-3) for name, tensor in expected.items())
    bundle = load_bundle("bundle")
    for module in (models["base"], models["other"]):  # the second is written whole, from the copy of the first
        bundle.apply_(module, "dtd")
        assert all_same(module.state_dict(), expected)
    resaved = transformers.ViTForImageClassification.from_pretrained("published")
    resaved.save_pretrained("resaved", max_shard_size="10kB")  # in other files, the same values
    assert all_same(load_bundle("bundle", "resaved").state_dict("dtd", like=resaved), expected)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_module_of_another_dtype_has_the_values_that_export_writes(made, dtype, device):
    """A live model would give other results than the exported one of its dtype, or with other defaults of torch."""
    bundle = load_bundle(made.folder, made.base_file, device)
    module = Everything(made.base, dtype)
    module.wide = torch.nn.Parameter(module.wide.T.contiguous().T)
    module.short = torch.nn.Parameter(module.short.permute(2, 1, 0).contiguous().permute(2, 1, 0))
    strides = module.wide.stride()
    before = copy.deepcopy(weights_of(module))
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            bundle.apply_(module, "ümlaut")
    finally:
        torch.set_default_dtype(torch.float32)
    for name, tensor in weights_of(module).items():
        if name in made.merged:
            change = torch.from_numpy(np.asarray(task_bundles.update(made, "ümlaut", name)))
            assert same_bits(tensor, (made.base[name].float() + change).to(made.base[name].dtype).to(dtype))
        else:
            assert same_bits(tensor, before[name])
    bundle.restore_(module)
    assert all_same(weights_of(module), before)
    assert module.wide.stride() == strides != made.base["wide"].stride()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: delattr(m, "wide"), "wide"),
        (lambda m: setattr(m, "more", torch.nn.Parameter(torch.ones(2))), "more"),
        (lambda m: setattr(m, "wide", torch.nn.Parameter(torch.ones(8, 9))), r"wide .*\[8, 9\]"),
        (lambda m: setattr(m.twin, "bias", torch.nn.Parameter(torch.ones(13))), "twin.bias"),
        (lambda m: setattr(m, "wide", torch.nn.Parameter(m.wide.to("meta"))), "wide .*meta"),
        (lambda m: setattr(m, "wide", torch.nn.Parameter(torch.ones(1, 1).expand(m.wide.shape))), "wide .*dense"),
    ],
)
def test_a_module_that_does_not_fit_is_not_changed(made, change, message):
    """Part of a model would be overwritten with another model's weights."""
    module = Everything(made.base)
    change(module)
    before = copy.deepcopy(module.state_dict())
    bundle = load_bundle(made.folder, made.base_file)
    for work in (lambda: bundle.apply_(module, "mnist"), lambda: bundle.restore_(module)):
        with pytest.raises(TallmasksError, match=message) as error:
            work()
        assert "\n" not in str(error.value)
    for name, tensor in module.state_dict().items():
        assert tensor.is_meta or same_bits(tensor, before[name])
    with pytest.raises(TallmasksError, match=r"'mnits'.* 'mnist'"):
        bundle.apply_(module, "mnits")
    with pytest.raises(TallmasksError, match=r"dict.*torch\.nn\.Module.*bundle\.state_dict"):
        bundle.apply_(dict(made.base), "mnist")


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("stop", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_an_interrupted_switch_leaves_theta_0(made, monkeypatch, stop, device):
    """A mixture of two tasks' weights would be used, and nobody would notice."""
    bundle = load_bundle(made.folder, made.base_file, device)
    module = Everything(made.base)
    bundle.apply_(module, "mnist")
    add = BundleParts.add

    def stopped(parts, theta, task, name, *arguments):
        if name == "narrow":
            raise stop
        add(parts, theta, task, name, *arguments)

    def unpacked_once(packed, calls=[]):  # noqa: B006
        calls.append(packed)
        if len(calls) > 2:
            raise stop
        return unpacked(packed)

    monkeypatch.setattr(BundleParts, "add", stopped)
    monkeypatch.setattr("tallmasks.bundles.module_writing.unpacked", unpacked_once)
    with pytest.raises(type(stop)):
        bundle.apply_(module, "ümlaut")
    assert all_same(weights_of(module), made.base)


@pytest.mark.parametrize("with_base", [True, False])
def test_a_pickled_bundle_is_the_same_bundle(made, with_base, monkeypatch, tmp_path):
    """A worker in another folder would use another base, or none; or the memory that it takes would be unknown."""
    monkeypatch.chdir(made.folder.parent)
    bundle = load_bundle(made.folder.name, made.base_file.name if with_base else None, device="cpu")
    monkeypatch.chdir(tmp_path)
    bundle.apply_(Everything(made.base), "mnist")
    again = pickle.loads(pickle.dumps(bundle))
    shared = sum(t.numel() * t.element_size() for t in made.base.values() if t.is_floating_point())
    shared += (made.folder / "merged.safetensors").stat().st_size
    masks = max(path.stat().st_size for path in made.folder.glob("masks/*"))
    assert f"keeps {decimal(shared)} on cpu and up to {decimal(masks)} for each task" in repr(bundle)
    assert repr(again) == repr(bundle)
    assert all_same(again.state_dict("mnist"), expected(made, "mnist"))


def bundle_over(model, folder):
    """A bundle of two tasks, with a transformers model saved as its base."""
    model.save_pretrained(folder / "base")
    base = open_checkpoint(folder / "base")
    rng = np.random.default_rng(1)
    contents = BundleContents("sum", base, ["a", "b"], dtype="bfloat16", include_base=True)
    with new_bundle(folder / "bundle", contents) as new:
        for name, form in base.tensors.items():
            size = int(np.prod(form.shape))
            masks = {task: rng.integers(0, 256, -(-size // 8), np.uint8) for task in "ab"}
            new.write(name, 0, rng.standard_normal(size).astype(np.float32) / 50, masks)
    return load_bundle(folder / "bundle")


def within(name):
    """A wrapper with the names of DDP ("module") or torch.compile ("_orig_mod")."""
    return lambda model: torch.nn.ModuleDict({name: model})


def compiled_part(model):
    model.lm_head = within("_orig_mod")(model.lm_head)
    return model


WRAPPED = [
    ("ViTForImageClassification", within("module")),
    ("Dinov2Model", lambda model: model),
    ("GPTNeoXForCausalLM", compiled_part),
    ("MixtralForCausalLM", within("_orig_mod")),
]


@pytest.mark.parametrize(("kind", "wrap"), WRAPPED)
def test_tensors_are_matched_under_transformers_names_and_in_wrappers(tmp_path, kind, wrap):
    """The paper's models, and models that are compiled or trained on several GPUs, would be refused."""
    model = made_model(kind)
    bundle = bundle_over(model, tmp_path)
    before = copy.deepcopy(model.state_dict())
    own = dict(model.named_parameters())
    live = wrap(model)
    assert load_file(tmp_path / "base/model.safetensors").keys() != live.state_dict().keys()
    for task in "ab":
        bundle.apply_(live, task)
        save_file(bundle.state_dict(task), tmp_path / "base/model.safetensors")
        wanted = type(model).from_pretrained(tmp_path / "base").state_dict()
        assert all_same({name: tensor.detach() for name, tensor in own.items()}, wanted)
        live.load_state_dict(bundle.state_dict(task, like=live))
        assert all_same({name: tensor.detach() for name, tensor in own.items()}, wanted)
    bundle.restore_(live)
    assert all_same({name: tensor.detach() for name, tensor in own.items()}, before)


def rwkv():
    size = {"hidden_size": 8, "attention_hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    config = transformers.RwkvConfig(vocab_size=9, context_length=8, rescale_every=1, **size)
    return transformers.RwkvForCausalLM(config), {"input_ids": torch.tensor([[1, 2, 3]])}


def levit():
    size = {"hidden_sizes": [8, 8, 8], "num_attention_heads": [1, 1, 1], "depths": [1, 1, 1], "key_dim": [4, 4, 4]}
    config = transformers.LevitConfig(image_size=64, num_labels=2, **size)
    return transformers.LevitForImageClassification(config), {
        "pixel_values": torch.linspace(0, 1, 12288).view(1, 3, 64, 64)
    }


@pytest.mark.parametrize("build", [rwkv, levit])
@pytest.mark.parametrize("first", ["dtd", None])
def test_a_model_that_remembers_its_old_weights(build, first, tmp_path):
    """RWKV divides its weights in a forward pass, and LeViT caches a part: the next task would get wrong logits."""
    base, inputs = build()
    for name, seed in {"base": 0, "dtd": 1, "cars": 2}.items():
        moved(base, seed).save_pretrained(tmp_path / name)
    tasks = {task: tmp_path / task for task in ("dtd", "cars")}
    tallmasks.compress(tmp_path / "base", tasks, tmp_path / "bundle", method="task_arithmetic", mask_lambda=0)
    bundle, kind = load_bundle(tmp_path / "bundle"), type(base)
    live = kind.from_pretrained(tmp_path / "base").eval()
    with torch.no_grad():
        before = live(**inputs).logits
        for task in (first, "cars", "dtd"):
            bundle.apply_(live, task) if task else bundle.restore_(live)
            right = kind.from_pretrained(tmp_path / "base")
            right.load_state_dict(bundle.state_dict(task, like=right) if task else right.state_dict())
            logits = live(**inputs).logits
            torch.testing.assert_close(logits, right.eval()(**inputs).logits)
            assert task is None or not torch.allclose(logits, before)


def test_a_part_of_the_model_is_matched_without_its_prefix(made, tmp_path):
    """A user who only has the encoder would have to rename every tensor."""
    state = {f"model.encoder.{name}": tensor for name, tensor in made.base.items()}
    save_file(state, tmp_path / "base.safetensors")
    base = open_checkpoint(tmp_path / "base.safetensors")
    unchanged = [name for name in base.layout.names if not name.endswith("scalar")]
    with new_bundle(tmp_path / "bundle", BundleContents("sum", base, ["x"], unchanged=unchanged)) as new:
        new.write("model.encoder.scalar", 0, np.ones(1, np.float32), {"x": np.ones(1, np.uint8)})
    for module in (Everything(made.base), torch.nn.ModuleDict({"encoder": Everything(made.base)})):
        load_bundle(tmp_path / "bundle").apply_(module, "x")
        assert next(t for n, t in module.named_buffers() if n.endswith("scalar")) == made.base["scalar"] + 1


def test_tensors_that_a_hook_renames_are_not_left_as_they_are(made):
    """A state dict for loading would have the module's random values under these names."""
    module = Everything(made.base)
    module.register_state_dict_post_hook(lambda _, state, *more: state.update(renamed=state.pop("wide")))
    with pytest.raises(TallmasksError, match="renamed"):
        load_bundle(made.folder, made.base_file).state_dict("mnist", like=module)


@no_deadline
@given(
    rows=st.integers(0, 100),
    row=st.integers(1, 70),
    codes=st.tuples(*[st.sampled_from(["F32", "BF16", "F16"])] * 2, st.sampled_from(["F32", "BF16", "F16", 2, 3, 8])),
    scale=st.floats(-4, 4, width=32),
    seed=st.integers(0, 1000),
)
@example(rows=5000, row=1, codes=("BF16", "BF16", "BF16"), scale=0.3, seed=0)
def test_pieces_of_any_size_follow_the_formula(rows, row, codes, scale, seed):
    """A weight at the edge of a block, a row or a mask byte would get its neighbour's update."""
    rng = np.random.default_rng(seed)
    theta_code, out_code, tau_code = codes
    size = rows * row
    theta = torch.from_numpy(rng.standard_normal(size)).to(torch_dtypes()[theta_code])
    if isinstance(tau_code, int):
        coding = Levels((rows, row), tau_code, row)
        content = task_bundles.coded_content(coding, rng)
        parts, tau = coding.pack(content), coding.values(content).reshape(-1)
    else:
        stored = torch.from_numpy(rng.standard_normal(size)).to(torch_dtypes()[tau_code])
        coding, parts, tau = Dense((rows, row), dtype=tau_code), {"": _bytes(stored)}, stored.float().numpy()
    bits = rng.integers(0, 256, -(-size // 8), np.uint8)
    keep = np.unpackbits(bits, count=size, bitorder="little").astype(bool)
    update = torch.from_numpy(np.where(keep, np.float32(scale) * tau, np.float32(0)))
    wide = theta.float()
    for start, stop in ((0, size), (size // 16 * 8, size), (size // 32 * 8, size // 2)):
        summed = np.empty(max(stop - start, 0), np.float32)
        mask = np.zeros(-(-summed.size // 32), np.uint32)
        mask.view(np.uint8)[: -(-summed.size // 8)] = bits[start // 8 : -(-stop // 8)][: -(-summed.size // 8)]
        coding.add_masked(parts, wide.numpy()[start:stop], start, mask, scale, summed)
        out = torch.empty(summed.size, dtype=torch_dtypes()[out_code])
        _bytes(out)[...] = rounded(summed, out_code)
        assert same_bits(out, (wide + update)[start:stop].to(out.dtype))


def _bytes(tensor):
    return tensor.contiguous().view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
