"""`tallmasks compress`, `export`, `info` and `verify` on checkpoints that transformers saved, and switching a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import reference
import tallmasks
from models_made import NAMED, TASKS, of_base_and_tasks, refusal, run, weights
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout, open_tensors, write_tensors
from tallmasks.methods import registry
from tallmasks.methods.codec import coded_bytes
from tallmasks.operations.compress import noise_of_tasks
from task_bundles import nearest

LAMBDAS = dict.fromkeys(TASKS, 0.5) | {"dtd": 0.3}
CHOSEN = ["--mask-lambda", "0.5", "--mask-lambda", "dtd=0.3"]
CALLS = {
    "stochastic_rounding": [],
    "stochastic_rounding:step=0.3": ["--step", "0.3"],
    "lossless": ["--method", "lossless"],
    "tall_mask_task_arithmetic:bits=3": ["--method", "task_arithmetic", "--option", "bits=3", *CHOSEN],
    "tall_mask_ties:bits=2": ["--method", "ties", "--bits", "2", *CHOSEN],
    "tall_mask_ties_equal_length:bits=3": ["--method", "ties"],
}
"""How a row of the tables is compressed."""


def plain(folder: Path, spec: str) -> tuple[Layout, np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """theta_0, the task vectors, and what the tables evaluate of a method, all in one flat order."""
    base, *tuned = of_base_and_tasks(folder).values()
    layout = Layout.of({name: values for name, values in base.items() if "embed" not in name})
    theta = layout.join(base)
    vectors = [layout.join(one) - theta for one in tuned]
    frozen = sum(values.size for values in base.values()) - layout.size
    limits = [reference.trim_threshold(vector, 0.2, frozen) for vector in vectors]
    merged = reference.ties(vectors, limits, mean=False) if "ties" in spec else reference.sum_vectors(vectors)
    method, updates = methods.get(spec), []
    given = {"pretrained": theta, "multi_task_vector": merged, "layout": layout}
    if bits := method.values.get("bits"):
        given["stored_vector"] = nearest(merged, layout, bits)
    for vector, mask_lambda in zip(vectors, LAMBDAS.values(), strict=True):
        given |= {"task_vector": vector, "mask": reference.mask(vector, merged, mask_lambda)}
        updates.append(method(**{name: given[name] for name in method.needs}))
    return layout, theta, vectors, updates


@pytest.mark.parametrize("spec", CALLS)
def test_every_task_comes_back(here: Path, tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle would give back another model than the table has the accuracy of, or a file, a module and a device
    three of them."""
    layout, theta, vectors, updates = plain(here, spec)
    out, words = tmp_path / "bundle", ["--base", "base", *NAMED, *CALLS[spec]]
    row, step = spec.replace("_equal_length", ""), methods.get(spec).values.get("step")
    assert run("compress", *words, "--dry-run", "-o", out) == 0 and not out.exists()
    line = rf"write  {f'--step {step:g}' if step else row}: about ([\d.]+) kB"
    (foretold,) = re.findall(line, capsys.readouterr().out)
    assert run("compress", *words, "-o", out) == 0
    said = capsys.readouterr().out
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file() and path.name != "README.md")
    assert size / float(foretold) == pytest.approx(1000, 0.3 if "tall_mask" in spec else 0.01)
    bundle, on_device = tallmasks.load_bundle(out), tallmasks.load_bundle(out, device="cpu")
    assert bundle.manifest.method == row
    assert set(bundle.manifest.tensors) - set(bundle.manifest.encoded) == {"model.embed_tokens.weight"}
    model, other = (LlamaForCausalLM.from_pretrained("base") for _ in range(2))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    noise = []
    for task, vector, update in zip(TASKS, vectors, updates, strict=True):
        np.testing.assert_array_equal(np.concatenate([bundle.update(task, name) for name in layout.names]), update)
        errors, fine_tuned = layout.split(update - vector), layout.split(theta + vector)
        each = [
            np.full(one.shape, np.linalg.norm(errors[name]) / np.linalg.norm(one)) for name, one in fine_tuned.items()
        ]
        noise.append(np.sqrt(np.mean(np.concatenate([one.reshape(-1) for one in each]) ** 2)))
        if "task_arithmetic" in spec:
            mask = reference.mask(vector, reference.sum_vectors(vectors), LAMBDAS[task])
            assert bundle.density(task) == pytest.approx(mask.mean(), 1e-6)
        assert run("export", out, "--task", task, "-o", tmp_path / task) == 0
        exported, state = weights(tmp_path / task), bundle.state_dict(task)
        wanted = {name: torch.from_numpy(values).bfloat16() for name, values in layout.split(theta + update).items()}
        if spec == "lossless":
            wanted = weights(here / task)
        bundle.apply_(model, task)
        on_device.apply_(other, task)
        for name, tensor in wanted.items():
            live = (model.get_parameter(name), other.get_parameter(name))
            assert all(torch.equal(one, tensor) for one in (exported[name], state[name], *live))
    bundle.restore_(model)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert run("verify", out) == 0 and run("info", out) == 0
    card, told = (out / "README.md").read_text(), capsys.readouterr().out
    if spec == "lossless":
        assert "comes back exactly, bit for bit" in said and card.count("| exact |") == told.count(" exact") == 3
    else:
        assert list(bundle.manifest.noise.values()) == pytest.approx(noise, 1e-4)
        assert f"noise: at most {max(noise):.2%} of the weights (a model quantised to 4 bits has about 10 %)" in said
        assert all(f"{one:.2%} |" in card and f"{one:.2%}" in told for one in noise)
    if "tall_mask" in spec and "equal" not in spec:
        assert bundle.manifest.mask_lambda == LAMBDAS


@pytest.mark.parametrize("name", ["stochastic_rounding", "lossless"])
def test_tables_count_the_bytes_of_bundles(tmp_path: Path, name: str) -> None:
    """A table would have another size than the bundle, or the printed noise would be wrong, of tensors with several
    pieces or of exact differences."""
    draw, shape = np.random.default_rng(0), (600, 500)
    theta = (draw.integers(-512, 512, shape) / 1024).astype(np.float32)  # sums with tau are exact
    theta[524:] *= 64  # the second piece
    taus = {task: (draw.integers(-8, 9, shape) / 2**12).astype(np.float32) for task in ("a", "b")}
    for task, tau in {"base": 0 * theta, **taus}.items():
        write_tensors(tmp_path / f"{task}.safetensors", {"w": theta + tau}, {})
    tasks = {task: tmp_path / f"{task}.safetensors" for task in taus}
    bundle = tallmasks.compress(tmp_path / "base.safetensors", tasks, tmp_path / "bundle", method=name)
    method, layout = methods.get(name), Layout(("w",), (shape,))
    for task, tau in taus.items():
        infos = open_tensors(bundle / "updates" / f"{task}.safetensors").infos.values()
        counted = coded_bytes(method.codec, tau.reshape(-1), theta.reshape(-1), layout, **method.values)
        assert counted == sum(info.nbytes for info in infos)
        error = tallmasks.load_bundle(bundle).update(task, "w").reshape(shape) - tau
        noise = np.linalg.norm(error.astype(float)) / np.linalg.norm((theta + tau).astype(float))
        assert tallmasks.load_bundle(bundle).manifest.noise[task] == pytest.approx(noise, 1e-4)


def test_a_method_with_other_steps_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second method, whose option `step` is no fraction of the base's rows, would be restored with other steps."""

    def in_own_steps(tau, steps_of, name, shape, start, *, step: float = 0.25):  # type: ignore[no-untyped-def]
        own = np.float32(step * abs(tau).max())
        assert (steps_of(own) == own).all()
        return np.rint(tau / own).astype(np.int32), own

    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    row = {"usage": methods.PerTask(), "storage": methods.storage_formulas.measured, "title": "", "paper": ""}
    methods.method(name="in_own_steps", order=900, **row)(methods.quantizer()(in_own_steps))
    draw, files = np.random.default_rng(0), {}
    theta, tau = (draw.normal(size=(60, 50), scale=scale).astype(np.float32) for scale in (5, 1e-3))
    tuned = theta + tau
    for name, values in {"base": theta, "a": tuned}.items():
        files[name] = tmp_path / f"{name}.safetensors"
        write_tensors(files[name], {"w": values}, {})
    bundle = tallmasks.compress(files.pop("base"), files, tmp_path / "bundle", method="in_own_steps")
    step = np.float32(0.25 * abs(tuned - theta).max())
    held = np.rint((tuned - theta) / step) * step
    np.testing.assert_array_equal(tallmasks.load_bundle(bundle).arrays("a")["w"], theta + held)
    noise = np.linalg.norm(held + theta - tuned) / np.linalg.norm(tuned)
    assert tallmasks.load_bundle(bundle).manifest.noise["a"] == pytest.approx(noise, 1e-3)


def test_lossless_restores_every_dtype_of_safetensors(tmp_path: Path) -> None:
    """A quantised model could not be stored, or would come back with other scales."""
    bits = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8, "F8_E4M3": 8, "BOOL": 8, "C64": 64, "U64": 64, "I16": 16}
    values = 2**18 + 8
    draw, header, stop = np.random.default_rng(0), {"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}, 256
    for dtype, each in bits.items():
        start, stop = stop, stop + values * each // 8
        header[dtype] = {"dtype": dtype, "shape": [values // 8, 8], "data_offsets": [start, stop]}
    text = json.dumps(header).encode()
    files = {name: tmp_path / f"{name}.safetensors" for name in ("base", "a", "b", "back")}
    for name in ("base", "a", "b"):
        data = draw.standard_normal(64, np.float32).tobytes() + draw.integers(0, 2, stop - 256, np.uint8).tobytes()
        files[name].write_bytes(len(text).to_bytes(8, "little") + text + data)
    tasks = {name: files[name] for name in "ab"}
    bundle = tallmasks.compress(files["base"], tasks, tmp_path / "bundle", method="lossless")
    for name in "ab":
        assert run("export", bundle, "--task", name, "-o", tmp_path / f"{name}-back.safetensors") == 0
        back, original = open_tensors(tmp_path / f"{name}-back.safetensors"), open_tensors(files[name])
        assert back.infos == original.infos
        assert all((back.raw_bytes(one) == original.raw_bytes(one)).all() for one in header)
    with pytest.raises(TallmasksError, match=r"F\d.* torch"):
        tallmasks.load_bundle(bundle).state_dict("a")


@pytest.mark.parametrize("method", ["lossless", "stochastic_rounding", "ties"])
def test_complex_buffers_are_kept_for_each_task(tmp_path: Path, method: str) -> None:
    """Tables of rotations that differ would be refused, with the advice to lose them."""
    draw, files = np.random.default_rng(0), {name: tmp_path / f"{name}.safetensors" for name in ("base", "a", "b")}
    for file in files.values():
        weights, table = (draw.standard_normal((64, 32)).astype(np.float32) for _ in range(2))
        write_tensors(file, {"w": weights, "freqs_cis": table.view(np.complex64)}, {})
    base = files.pop("base")
    bundle = tallmasks.load_bundle(tallmasks.compress(base, files, tmp_path / "bundle", method=method))
    for name, file in files.items():
        np.testing.assert_array_equal(bundle.arrays(name)["freqs_cis"], open_tensors(file).read("freqs_cis"))


def test_a_file_may_say_all_that_options_do(here: Path, tmp_path: Path) -> None:
    """A command of twenty tasks would have to be kept in a shell script, in part."""
    said = {"base": "base", "tasks": {task: task for task in TASKS}, "output": str(tmp_path / "bundle")}
    file = tmp_path / "bundle.yaml"
    file.write_text(json.dumps(said | {"method": "ties", "include_base": True}))
    assert run("compress", file) == 0
    words = [*NAMED, "--method", "ties", "--include-base"]
    assert run("compress", "--base", "base", *words, "-o", tmp_path / "other") == 0
    assert (tmp_path / "bundle/bundle.json").read_bytes() == (tmp_path / "other/bundle.json").read_bytes()


BASE = ["--base", "base", "--task", "cars=cars"]


def test_lossless_is_for_one_dtype(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Differences between the bit patterns of two dtypes would give random weights."""
    tensors = load_file("cars/model.safetensors")
    save_file(tensors | {"w.weight": tensors["w.weight"].half()}, "half.safetensors")
    words = ["--base", "base", "--task", "cars=half.safetensors", "--method", "lossless", "-o", "bundle"]
    said = refusal(capsys, "compress", *words)
    assert "cars: tensor w.weight is F16 [8, 8] and the base's is F32 [8, 8]" in said and "one dtype" in said
    assert not Path("bundle").exists()


def test_a_bundle_is_no_model(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its merged vector would be merged as if it were weights, or measured from."""
    assert run("compress", *BASE, "--method", "ties", "-o", "bundle") == 0

    for place in ("bundle", "bundle/merged.safetensors", "bundle/masks/cars.safetensors"):
        words = ["--base", "base", "--task", f"x={place}", "--method", "ties", "-o", "out"]
        assert "tallmasks export" in refusal(capsys, "merge", *words)


def test_a_task_of_a_bundle_is_a_checkpoint(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle's model would have to be exported before it could be merged."""
    assert run("compress", "--base", "base", "--task", "a=cars", "--task", "b=dtd", "-o", "bundle") == 0
    assert run("export", "bundle", "--task", "b", "-o", "exported") == 0
    for name, model in (("from-bundle", "bundle#b"), ("from-folder", "exported")):
        words = ["--base", "base", "--task", f"b={model}", "--task", "x=x-v0.1", "--method", "ties", "-o", name]
        assert run("merge", *words) == 0
    written = [Path(name, "model.safetensors").read_bytes() for name in ("from-bundle", "from-folder")]
    assert written[0] == written[1]
    assert run("merge", "--base", "bundle#a", "--task", "x=x-v0.2", "--method", "ties", "-o", "on-another") == 0
    assert run("info", "bundle#b") == 0 and "bundle#b: 2 tensors" in capsys.readouterr().out
    twice = ["compress", "--base", "base", "--task", "b=bundle#b", "-o", "twice"]
    assert "bundle#b: found a task of a bundle" in refusal(capsys, *twice)
    Path("base").rename("moved")
    assert run("verify", "bundle") == 1 and "Give --base" in capsys.readouterr().out
    assert [run("verify", "bundle", "--base", base) for base in ("moved", "dtd")] == [0, 1]
    assert run("merge", "--base", "moved", "--task", "b=bundle#b", "--method", "ties", "-o", "with-base") == 0


def test_the_base_that_was_compressed_is_found(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users would have to name the base again a minute later; or a published bundle would name their home folder."""
    Path("models").mkdir()
    Path("base").rename("models/base")
    for name, home in (("bundle", "/nowhere"), ("private", tmp_path / "models")):
        monkeypatch.setenv("HOME", str(home))
        tallmasks.compress("models/base", {"cars": "cars"}, f"out/{name}")
    for name, path, folder in (("bundle", "../models/base", "/"), ("private", "base", tmp_path / "models")):
        monkeypatch.chdir(folder)
        assert tallmasks.load_bundle(tmp_path / "out" / name).manifest.base.path == path
        assert run("export", tmp_path / "out" / name, "--task", "cars", "-o", tmp_path / f"{name}-cars") == 0


def test_noise_is_the_error_of_tensors_weighted_by_their_sizes() -> None:
    """A tensor that should be 0 and is not would count as exact, or a small one as much as a large one."""
    pieces = [("a", (1, 50, 3)), ("zeros", (4, 0, 2)), ("a", (1, 150, 2)), ("kept", (0, 0, 3))]
    (noise,) = noise_of_tasks([(name, [np.array(squares, float)]) for name, squares in pieces], 1)
    assert noise == pytest.approx(((5 * 2 / 200 + 2 * 1 + 3 * 0) / 10) ** 0.5)
