"""Task bundles: every task's weights, bit for bit, and switching a live module between tasks."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

import tallmasks
import task_bundles
from small_models import made as made_model
from small_models import moved
from tallmasks.bundles import module_writing
from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.updates import Update
from tallmasks.bundles.verification import verify_bundle
from tallmasks.errors import TallmasksError
from tallmasks.vectors.multiples import PIECE
from task_bundles import METHODS, TASKS, all_same, make, same_bits


@pytest.fixture(scope="module", params=METHODS)
def every(request, tmp_path_factory):
    """A bundle of every coding."""
    return make(tmp_path_factory.mktemp("made"), request.param)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("rounded"))


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


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity minus infinity
def test_each_task_comes_back_in_any_piece(every):
    """A task's model would be another one than theta_0 + update, rounded once, or than the one that was compressed."""
    bundle = load_bundle(every.folder, every.base_file)
    assert bundle.tasks == TASKS
    for task in TASKS:
        assert all_same(bundle.state_dict(task), every.wanted[task])
        assert all_same(dict(bundle.named_tensors(task)), every.wanted[task])
        if bundle.manifest.masks:
            assert bundle.density(task) == every.masks[task].mean()
        for name, update in every.updates[task].items():
            for start, stop in ((0, None), (1, None), (3, 12), (8, 9), (5, 5), (PIECE - 3, PIECE + 5)):
                found = bundle.update(task, name, start, stop)
                assert found.dtype == np.float32
                np.testing.assert_array_equal(found, update.reshape(-1)[start:stop])
    np.testing.assert_array_equal(bundle.update("mnist", "frozen"), np.zeros(16, np.float32))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_module_switches_between_tasks_and_back(every, device, monkeypatch):
    """After some switches the model would have drifted, or trained weights would be lost."""
    monkeypatch.setattr("tallmasks.bundles.module_writing.GROUP", 64)  # several groups of one dtype
    bundle = load_bundle(every.folder, every.base_file, device)
    module = Everything(every.base)
    addresses = {name: tensor.data_ptr() for name, tensor in module.named_parameters()}
    for task in (TASKS[0], TASKS[1], TASKS[0], TASKS[2], TASKS[2]):
        bundle.apply_(module, task)
        assert all_same(weights_of(module), every.wanted[task])
    bundle.restore_(module)
    assert all_same(weights_of(module), every.base)
    assert {name: tensor.data_ptr() for name, tensor in module.named_parameters()} == addresses
    assert module.twin.bias is module.a.bias and not module.short.requires_grad and module.a.bias.requires_grad


@pytest.mark.parametrize("size", [1e-4, 0.3], ids=["few", "all"])
def test_a_device_writes_rows_that_lie_in_two_pieces(tmp_path, size):
    """On a GPU, the second piece of a large matrix would be written over the first, or have the steps of other rows."""
    draw, shape = np.random.default_rng(0), (600, 500)
    theta = torch.from_numpy(draw.normal(size=shape) * draw.uniform(0.1, 9, (600, 1))).float()
    tuned = theta + torch.from_numpy(size * draw.normal(size=shape)).float()
    for name, tensor in {"base": theta, "a": tuned}.items():
        save_file({"weight": tensor}, tmp_path / f"{name}.safetensors")
    bundle = tallmasks.compress(tmp_path / "base.safetensors", {"a": tmp_path / "a.safetensors"}, tmp_path / "bundle")
    live = torch.nn.Linear(500, 600, bias=False)
    live.weight.data = theta.clone()
    load_bundle(bundle, device="cpu").apply_(live, "a")
    assert same_bits(live.weight, load_bundle(bundle).state_dict("a")["weight"])
    steps = (0.1 * theta.square().mean(dim=1).sqrt()).clip(min=1.01 * size)
    assert ((live.weight - tuned).abs().amax(dim=1) <= 1.01 * steps).all()


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
def test_without_a_base_the_module_itself_is_theta_0(tmp_path, device):
    """A bundle without its base could not be used, or weights would drift with every switch."""
    made = make(tmp_path)
    made.base_file.unlink()
    bundle, module = load_bundle(made.folder, device=device), Everything(made.base)
    with pytest.raises(TallmasksError, match=r"--base"):
        bundle.state_dict("mnist")
    for task in (TASKS[1], TASKS[0], TASKS[1]):
        bundle.apply_(module, task)
        assert all_same(weights_of(module), made.wanted[task])
    bundle.restore_(module)
    assert all_same(weights_of(module), made.base)


def test_the_recorded_base_is_found_and_checked(tmp_path):
    """A bundle would be added to any model that has replaced its base."""
    made = make(tmp_path)
    assert all_same(load_bundle(made.folder).state_dict("mnist"), made.wanted["mnist"])
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
    before, bundle = copy.deepcopy(models["other"].state_dict()), load_bundle("bundle")
    for work in (lambda: bundle.apply_(models["other"], "dtd"), lambda: bundle.restore_(models["other"])):
        with pytest.raises(TallmasksError, match=r"base.*classifier\.bias"):
            work()
    assert all_same(models["other"].state_dict(), before)
    half = copy.deepcopy(models["base"]).half()
    with pytest.raises(TallmasksError, match=r"F16.*F32.* module_is_base=True"):
        load_bundle("bundle").apply_(half, "dtd")
    load_bundle("bundle").apply_(half, "dtd", module_is_base=True)
    assert all(torch.allclose(half.state_dict()[name], tensor.half(), atol=2e-3) for name, tensor in expected.items())
    bundle = load_bundle("bundle")
    for module in (models["base"], models["other"]):  # the second is written whole, from the copy of the first
        bundle.apply_(module, "dtd")
        assert all_same(module.state_dict(), expected)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_module_of_another_dtype_has_the_values_that_export_writes(made, dtype, device):
    """A live model would give other results than the exported one of its dtype."""
    bundle = load_bundle(made.folder, made.base_file, device)
    module = Everything(made.base, dtype)
    module.wide = torch.nn.Parameter(module.wide.T.contiguous().T)
    module.short = torch.nn.Parameter(module.short.permute(2, 1, 0).contiguous().permute(2, 1, 0))
    before = copy.deepcopy(weights_of(module))
    bundle.apply_(module, "ümlaut")
    for name, tensor in weights_of(module).items():
        if name in made.updates["ümlaut"]:
            assert same_bits(tensor, made.wanted["ümlaut"][name].to(dtype))
        else:
            assert same_bits(tensor, before[name])
    bundle.restore_(module)
    assert all_same(weights_of(module), before)
    assert module.wide.stride() == (1, 9) != made.base["wide"].stride()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: delattr(m, "wide"), "wide"),
        (lambda m: setattr(m, "wide", torch.nn.Parameter(torch.ones(8, 9))), r"wide .*\[8, 9\]"),
        (lambda m: setattr(m.twin, "bias", torch.nn.Parameter(torch.ones(13))), "twin.bias"),
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
        with pytest.raises(TallmasksError, match=message):
            work()
    for name, tensor in module.state_dict().items():
        assert same_bits(tensor, before[name])
    with pytest.raises(TallmasksError, match=r"'mnits'.* 'mnist'"):
        bundle.apply_(module, "mnits")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_interrupted_switch_leaves_theta_0(made, monkeypatch, device):
    """A mixture of two tasks' weights would be used, and nobody would notice."""
    bundle = load_bundle(made.folder, made.base_file, device)
    module = Everything(made.base)
    bundle.apply_(module, "mnist")
    owner, name = (Update, "apply") if device is None else (module_writing, "_added")
    compute, calls = getattr(owner, name), []

    def stops_at_third_call(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute(*arguments)

    monkeypatch.setattr(owner, name, stops_at_third_call)
    with pytest.raises(KeyboardInterrupt):
        bundle.apply_(module, "ümlaut")
    assert all_same(weights_of(module), made.base)


def test_a_pickled_bundle_is_the_same_bundle(made, monkeypatch, tmp_path):
    """A worker in another folder would use another base, or none; or the memory that it takes would be unknown."""
    monkeypatch.chdir(made.folder.parent)
    bundle = load_bundle(made.folder.name, made.base_file.name, device="cpu")
    monkeypatch.chdir(tmp_path)
    bundle.apply_(Everything(made.base), "mnist")
    again = pickle.loads(pickle.dumps(bundle))
    floats = sum(tensor.nbytes for tensor in made.base.values() if tensor.is_floating_point())
    (decoded,) = re.findall(r"([\d.]+) MB decoded on cpu", repr(bundle))
    assert floats < 1e6 * float(decoded) < 2.2 * floats and "decoded" not in repr(again)
    assert all_same(again.state_dict("mnist"), made.wanted["mnist"])


def test_a_part_of_the_model_is_matched_without_its_prefix(tmp_path):
    """A user who only has the encoder would have to rename every tensor."""
    part = make(tmp_path, forms={f"model.encoder.{name}": form for name, form in task_bundles.FORMS.items()})
    base, wanted = (
        {n.removeprefix("model.encoder."): t for n, t in of.items()} for of in (part.base, part.wanted["mnist"])
    )
    for module in (encoder := Everything(base), torch.nn.ModuleDict({"encoder": Everything(base)})):
        load_bundle(part.folder, part.base_file).apply_(module, "mnist")
        assert all_same(weights_of(module["encoder"] if module is not encoder else module), wanted)


def bundle_over(model, folder):
    """A bundle of two tasks, with a transformers model saved as its base."""
    model.save_pretrained(folder / "base")
    for seed, task in enumerate("ab", 1):
        moved(model, seed).save_pretrained(folder / task)
    tallmasks.compress(folder / "base", {task: folder / task for task in "ab"}, folder / "bundle", include_base=True)
    return load_bundle(folder / "bundle")


@pytest.mark.parametrize(
    ("kind", "wrapper"), [("ViTForImageClassification", "module"), ("MixtralForCausalLM", "_orig_mod")]
)
def test_tensors_are_matched_under_transformers_names_and_in_wrappers(tmp_path, kind, wrapper):
    """Models that are compiled or trained on several GPUs, or whose experts transformers joins, would be refused."""
    model = made_model(kind)
    bundle, before = bundle_over(model, tmp_path), copy.deepcopy(model.state_dict())
    live = torch.nn.ModuleDict({wrapper: model})
    for task in "ab":
        bundle.apply_(live, task)
        save_file(bundle.state_dict(task), tmp_path / "base/model.safetensors")
        wanted = type(model).from_pretrained(tmp_path / "base").state_dict()
        assert all_same(model.state_dict(), wanted)
        live.load_state_dict(bundle.state_dict(task, like=live))
        assert all_same(model.state_dict(), wanted)
    bundle.restore_(live)
    assert all_same(model.state_dict(), before)


def test_a_model_that_remembers_its_old_weights(tmp_path):
    """RWKV divides its weights in a forward pass: the next task would get wrong logits."""
    size = {"hidden_size": 8, "attention_hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    config = transformers.RwkvConfig(vocab_size=9, context_length=8, rescale_every=1, **size)
    model = transformers.RwkvForCausalLM(config).eval()
    bundle, tokens = bundle_over(model, tmp_path), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        for task in ("a", "b", "a"):
            bundle.apply_(model, task)
            right = type(model)(model.config).eval()
            right.load_state_dict(bundle.state_dict(task, like=right))
            torch.testing.assert_close(model(tokens).logits, right(tokens).logits)
