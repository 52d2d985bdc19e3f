"""Files of task bundles: their format, invalid bundles, and bundles on the hub."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pcodec import ChunkConfig, standalone
from pydantic import ValidationError
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

import tallmasks
from loopback_hub import COMMIT, REPOSITORY, loopback_hub
from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_writer import BundleContents, new_bundle
from tallmasks.bundles.manifest import MASKS, Manifest, bundle_digest, is_safe, task_files
from tallmasks.bundles.streams import encoded
from tallmasks.bundles.verification import verify_bundle
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import read_metadata
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from task_bundles import FORMS, MASKED, METHODS, TASKS, all_same, changed, make, patterns, same_bits


def read_streams(file, sizes):
    """The integers of each piece, and the steps, by the description of the format alone."""
    tensors = {name: tensor.numpy() for name, tensor in load_file(file).items()}
    stream, every = tensors[".streams"].tobytes(), []
    for size, nbytes in zip(sizes, tensors[".lengths"].tolist(), strict=True):
        gaps, values = stream[: nbytes[0]], stream[nbytes[0] : sum(nbytes)]
        stream = stream[sum(nbytes) :]
        few = standalone.simple_decompress(values) if values else np.zeros(0, np.int32)
        if values and not gaps:
            every.append(few)
            assert 8 * np.count_nonzero(few) > few.size == size
            continue
        every.append(np.zeros(size, few.dtype))
        if gaps:
            every[-1][np.cumsum(standalone.simple_decompress(gaps) + 1) - 1] = few
        assert few.all() and 8 * few.size <= size
    assert not stream
    return every, tensors.get(".steps")


def ordered(bits):
    """Bit patterns as integers in the order of the floats, or back."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@pytest.mark.parametrize("method", METHODS)
def test_the_files_follow_the_documented_format(tmp_path, method):
    """A bundle could not be read with safetensors, pcodec and the description of the format alone."""
    made = make(tmp_path, method)
    manifest = json.loads((made.folder / "bundle.json").read_text())
    assert manifest["format"] == "tallmasks/bundle/3" and manifest["digest"] == bundle_digest(manifest)
    assert manifest["tasks"] == list(TASKS) and list(manifest["tensors"]) == sorted(
        n for n in made.base if n != "steps"
    )
    digest = hashlib.sha256(made.base["frozen"].view(torch.uint8).numpy().tobytes()).hexdigest()
    assert manifest["tensors"]["frozen"] == {"shape": [4, 4], "dtype": "BF16", "stored": False, "base_sha256": digest}
    assert {str(p.relative_to(made.folder)) for p in made.folder.rglob("*") if p.is_file()} == {
        "bundle.json", "README.md", *manifest["files"]
    }  # fmt: skip
    files = manifest.get("masks") or manifest["updates"]
    folder = "masks" if "masks" in manifest else "updates"
    assert files[TASKS[1]] == f"{folder}/two%20words%2F..%2Fx.safetensors"
    every = (made.base[name].numel() for name in sorted(made.updates["mnist"]))
    sizes = [min(size - start, 2**18) for size in every for start in range(0, size, 2**18)]
    words = [-(-size // 16) for size in sizes] if folder == "masks" else sizes
    integers, steps = read_streams(made.folder / files["mnist"], words)
    if folder == "masks":
        assert steps is None and {one.dtype for one in integers} == {np.dtype(np.uint16)}
        masks = [np.unpackbits(words.view(np.uint8), bitorder="little") for words in integers]
        shared, steps = read_streams(made.folder / "merged.safetensors", sizes)
        integers = [one * mask[: one.size] for one, mask in zip(shared, masks, strict=True)]
    place = 0
    for name in sorted(made.updates["mnist"]):
        dtype, shape = FORMS[name]
        for start in range(0, made.base[name].numel(), 2**18):
            base = made.base[name].reshape(-1)[start : start + 2**18]
            wanted = made.wanted["mnist"][name].reshape(-1)[start : start + 2**18]
            found, place = integers[place], place + 1
            if method == "lossless":
                assert found.dtype.itemsize == dtype.itemsize and steps is None
                bits = ordered(ordered(patterns(base)) + found)
                assert same_bits(torch.from_numpy(bits).view(dtype), wanted)
                continue
            step = np.full(found.size, steps[place - 1])
            if folder == "updates" and sum(length > 1 for length in shape) > 1:
                row = np.arange(start, start + found.size) // np.prod(shape[1:])
                squares = np.bincount(row - row[0], base.float().numpy().astype(np.float64) ** 2)
                means = squares / np.bincount(row - row[0])
                step = np.maximum(manifest["row_step"] * np.sqrt(means), steps[place - 1]).astype(np.float32)[
                    row - row[0]
                ]
            assert found.dtype == np.int32
            assert same_bits(changed(base, found.astype(np.float32) * step), wanted)
    assert place == len(integers)
    assert verify_bundle(made.folder) == []


def test_the_card_names_the_base_and_shows_how_to_load(tmp_path):
    """A user who finds a bundle on the hub would not know its base, nor how to load it."""
    save_file({"w": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    origin, task = {"repository": "someone/model", "revision": "a" * 40}, "x|`y` # z"
    base = replace(open_checkpoint(tmp_path / "model.safetensors"), origin=origin)
    with new_bundle(tmp_path / "bundle", BundleContents("tall_mask", base, [task])) as new:
        new.append(None, encoded(np.ones(16, np.int32)), np.float32(1))
        new.append(task, encoded(np.array([0x0301], np.uint16)))
        new.mask_lambda[task], new.density[task] = 0.3, 3 / 16
    card = (tmp_path / "bundle/README.md").read_text()
    assert 'base_model: "someone/model"\nlibrary_name: tallmasks\n' in card.split("---")[1]
    assert "| x\\|\\`y\\` \\# z |" in card and "apply_(model, 'x|`y` # z')" in card


def test_file_names_of_tasks_are_safe_and_unique():
    """A task's masks would overwrite another file, or those of another task."""
    tasks = ["../../etc/passwd", "/abs", "a\\b", "..", ".", "", "A", "a", "é", "e\u0301", "con:1", "x" * 300, "~"]
    files = task_files([*tasks, *(f"{'x' * 300}{i}" for i in range(3)), "%2E", "%2e", "x~", ".hidden"], MASKS)
    second = task_files(["a", "A"], "")["A"].removesuffix(".safetensors")  # is a task's name here, too
    assert len({file.lower() for file in task_files([second, "a", "A"], MASKS).values()}) == 3
    assert len({file.lower() for file in files.values()}) == len(files)
    for file in files.values():
        assert is_safe(file) and file.count("/") == 1 and len(file.encode()) < 150 and "/." not in file


def forge(folder, file, change):
    """Change the tensors of a bundle's file, and its digests with it."""
    tensors = {name: tensor.numpy().copy() for name, tensor in load_file(folder / file).items()}
    change(tensors)
    save_arrays(tensors, folder / file, read_metadata(folder / file))
    content = (folder / file).read_bytes()
    part = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    forge_manifest(folder, lambda manifest: manifest["files"].update({file: part}))


def forge_manifest(folder, change):
    """Change bundle.json, and its digest with it."""
    manifest = json.loads((folder / "bundle.json").read_text())
    change(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest | {"digest": bundle_digest(manifest)}))


def with_last(**change):
    """A change of a file's last piece: its gaps or values, each by a function."""

    def edit(tensors):
        gaps, values = tensors[".lengths"][-1].tolist()
        rest, last = np.split(tensors[".streams"], [tensors[".streams"].size - gaps - values])
        pair = {"gaps": last[:gaps].tobytes(), "values": last[gaps:].tobytes()}
        pair |= {name: function(pair[name]) for name, function in change.items()}
        tensors[".lengths"][-1] = [*map(len, pair.values())]
        tensors[".streams"] = np.concatenate([rest, np.frombuffer(b"".join(pair.values()), np.uint8)])

    return edit


def stream_of(*values, dtype=np.int32):
    return lambda old: standalone.simple_compress(np.array(values, dtype), ChunkConfig())


def gaps(*values):
    return stream_of(*values, dtype=np.uint32)


def one_too_many(tensors):
    tensors[".lengths"] = np.concatenate([tensors[".lengths"], tensors[".lengths"][-1:]])


FORGED = {
    "cut": with_last(values=lambda values: values[:-5]),
    "longer": with_last(values=stream_of(*[0] * 2**20)),
    "of another dtype": with_last(values=stream_of(*[0] * 72, dtype=np.int16)),
    "one too many": one_too_many,
    "more bytes": lambda tensors: tensors[".lengths"].__setitem__((-1, 1), 2**32 - 1),
    "bytes that overflow": lambda tensors: tensors[".lengths"].__setitem__(slice(None), 2**31),
    "too many gaps": with_last(gaps=gaps(*[0] * 10), values=stream_of(*[1] * 10)),
    "millions of gaps": with_last(gaps=gaps(*[0] * 2**20), values=stream_of(1, 1)),
    "other values than gaps": with_last(gaps=gaps(0, 0, 0), values=stream_of(1, 1)),
    "no values": with_last(gaps=gaps(0, 0), values=lambda _: b""),
    "signed gaps": with_last(gaps=stream_of(0, -1), values=stream_of(1, 1)),
    "gaps past the end": with_last(gaps=gaps(0, 71), values=stream_of(1, 1)),
    "gaps that overflow": with_last(gaps=gaps(2**32 - 1, 2**32 - 1), values=stream_of(1, 1)),
    "no steps": lambda tensors: tensors.pop(".steps"),
    "step NaN": lambda tensors: tensors[".steps"].__setitem__(-1, np.nan),
    "step 0": lambda tensors: tensors[".steps"].__setitem__(-1, 0),
    "step that gives infinite weights": lambda tensors: tensors[".steps"].__setitem__(-1, 1e38),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    forms = {name: FORMS[name] for name in ("a.bias", "a.weight", "tall", "wide")}
    return {method: make(tmp_path_factory.mktemp("small"), method, forms=forms) for method in METHODS}


FILES = {
    "updates/mnist": ("stochastic_rounding", FORGED),
    "merged": (MASKED, ["cut", "step NaN", "step that gives infinite weights"]),
    "masks/mnist": (MASKED, ["cut"]),
}


@pytest.mark.parametrize(
    ("method", "file", "forged"), [(method, file, name) for file, (method, names) in FILES.items() for name in names]
)
def test_forged_streams_are_refused_in_a_line(small, tmp_path, method, file, forged):
    """A bundle from somebody would end the program with a traceback, fill the memory, or give a model of NaN."""
    made, folder = small[method], tmp_path / "bundle"
    shutil.copytree(made.folder, folder)
    forge(folder, f"{file}.safetensors", FORGED[forged])
    bundle = load_bundle(folder, made.base_file)
    with pytest.raises(TallmasksError, match=rf"{file}\.safetensors"):
        bundle.state_dict("mnist")
    assert any(f"{file}.safetensors" in problem for problem in verify_bundle(folder))
    if file != "merged":
        assert all_same(bundle.state_dict("ümlaut"), made.wanted["ümlaut"])


def reordered(value):
    """JSON with the keys of all objects in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(inner) for key, inner in reversed(value.items())}
    return [*map(reordered, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_keys_means_nothing(tmp_path, method):
    """A tool that sorts the keys of JSON files would exchange the weights of two tensors, with the same digest."""
    made = make(tmp_path, method)
    path = made.folder / "bundle.json"
    path.write_text(json.dumps(reordered(json.loads(path.read_text()))))
    assert verify_bundle(made.folder) == []
    for task in TASKS:
        assert all_same(load_bundle(made.folder, made.base_file).state_dict(task), made.wanted[task])


@pytest.mark.parametrize("method", METHODS)
def test_a_file_of_another_task_is_refused(tmp_path, method):
    """A task of a forged or wrongly repaired bundle would silently be another task's model."""
    made = make(tmp_path, method)

    def exchange(manifest):
        files = manifest["masks" if method == MASKED else "updates"]
        files["mnist"], files["ümlaut"] = files["ümlaut"], files["mnist"]

    forge_manifest(made.folder, exchange)
    with pytest.raises(TallmasksError, match=r"its metadata have .*; expected .*'task': 'mnist'"):
        load_bundle(made.folder, made.base_file).state_dict("mnist")
    assert len(verify_bundle(made.folder)) == 2


def test_own_tensors_of_another_task_are_refused(tmp_path):
    """A task of a forged or wrongly repaired bundle would silently have another task's head."""
    save_arrays({"w": np.ones((4, 4), np.float32)}, tmp_path / "base.safetensors")
    for number, task in enumerate("ab"):
        tensors = {"w": np.full((4, 4), 1.1, np.float32), "head": np.full(3, number, np.float32)}
        save_arrays(tensors, tmp_path / f"{task}.safetensors")
    tasks = {task: tmp_path / f"{task}.safetensors" for task in "ab"}
    tallmasks.compress(tmp_path / "base.safetensors", tasks, tmp_path / "bundle")

    def exchange(manifest):
        a, b = manifest["models"]["a"], manifest["models"]["b"]
        a["own_file"], b["own_file"] = b["own_file"], a["own_file"]

    forge_manifest(tmp_path / "bundle", exchange)
    with pytest.raises(TallmasksError, match=r"its metadata have .*; expected .*'task': 'a'"):
        load_bundle(tmp_path / "bundle").state_dict("a")


def test_a_step_of_a_row_that_gives_infinite_weights_is_refused(tmp_path):
    """Another base, whose rows are huge, would give a model of infinities."""
    base = np.ones((2, 1024), np.float32)
    base[1] = 1e30
    save_arrays({"w": base}, tmp_path / "base.safetensors")
    save_arrays({"w": base * np.float32(1.01)}, tmp_path / "task.safetensors")
    tallmasks.compress(tmp_path / "base.safetensors", {"a": tmp_path / "task.safetensors"}, tmp_path / "bundle")
    assert 0 < load_bundle(tmp_path / "bundle").manifest.noise["a"] < 0.1
    with pytest.raises(TallmasksError, match=r"its step is 1\.0000"):
        load_bundle(tmp_path / "bundle").state_dict("a")


HUGE = {
    "a size": lambda manifest: manifest.update(sizes={"base": 10**400, "models": 0}),
    "an axis": lambda manifest: manifest["tensors"]["tall"].update(shape=[10**4000, 10**4000]),
    "many axes": lambda manifest: manifest["tensors"]["tall"].update(shape=[2**62] * 10000),
    "a product": lambda manifest: manifest["tensors"]["tall"].update(shape=[2**62, 2]),
    "a step": lambda manifest: manifest.update(row_step=1e30),
    "a path": lambda manifest: manifest["base"].update(path="x/" * 3000 + "y" * 4000),
    "a name": lambda manifest: manifest["base"].update(path="y" * 300),
    "a thousand files": lambda manifest: manifest.update(
        tasks=[f"task {number}" for number in range(1000)],
        updates={f"task {number}": f"updates/{number}.safetensors" for number in range(1000)},
        noise={},
        files={},
    ),
}


@pytest.mark.parametrize("huge", HUGE)
def test_huge_values_are_refused_in_a_line(small, tmp_path, huge):
    """A bundle from somebody would end the program with a traceback, or never."""
    folder = tmp_path / "bundle"
    shutil.copytree(small["stochastic_rounding"].folder, folder)
    forge_manifest(folder, HUGE[huge])
    with pytest.raises(TallmasksError) as error:
        load_bundle(folder).state_dict("mnist")
    assert "\n" not in str(error.value) and len(str(error.value)) < 700


def test_a_manifest_with_many_mistakes_keeps_few_errors(small):
    """A file of some megabytes would fill the memory with errors, of which one is shown."""
    manifest = json.loads((small[MASKED].folder / "bundle.json").read_text())
    many = [f"{number}" for number in range(1000)]
    for change in (
        {"tensors": {name: {"shape": -1} for name in many}},
        {"aliases": dict.fromkeys(many, 1)},
        {"models": {"mnist": {"companions": dict.fromkeys(many, 1)}}},
        {"models": {"mnist": {"missing": [1] * 1000}}},
        dict.fromkeys(many, 1),
        {"base": dict.fromkeys(many, 1)},
    ):
        with pytest.raises(ValidationError) as error:
            Manifest.model_validate(manifest | change)
        assert error.value.error_count() < 10


def test_info_escapes_what_a_bundle_says(small, tmp_path, capsys):
    """A bundle from somebody could fake the output of a terminal."""
    folder = tmp_path / "bundle"
    shutil.copytree(small[MASKED].folder, folder)
    forge_manifest(folder, lambda manifest: manifest.update(method="\x1b[2Jmine", base={"path": "\x1b]0;base"}))
    assert main(["info", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and r"\x1b[2Jmine" in said and r"\x1b]0;base" in said


def test_only_the_files_of_one_task_are_downloaded(tmp_path, monkeypatch):
    """A user of one task would have to download the files of all tasks."""
    made = make(tmp_path / "made", include_base=True)
    made.base_file.unlink()
    updates = json.loads((made.folder / "bundle.json").read_text())["updates"]
    with loopback_hub(made.folder, tmp_path / "cache") as server, monkeypatch.context() as patch:
        assert all_same(load_bundle(REPOSITORY).state_dict("mnist"), made.wanted["mnist"])
        assert set(updates.values()) & set(server.downloads) == {updates["mnist"]}
        patch.setattr("tallmasks.io.hub.reachable", lambda: False)
        (snapshot,) = (tmp_path / "cache").glob("**/snapshots/*")
        for spec in (f"{REPOSITORY}@{COMMIT}", snapshot):
            assert all_same(load_bundle(spec).state_dict("mnist"), made.wanted["mnist"])
        with pytest.raises(TallmasksError, match=f"hf download {REPOSITORY} updates/"):
            load_bundle(REPOSITORY).update("ümlaut", "wide")


def test_links_out_of_the_folder_are_refused(tmp_path):
    """An untrusted bundle could read any file on this machine."""
    made = make(tmp_path)
    update = made.folder / "updates/mnist.safetensors"
    update.rename(tmp_path / "elsewhere")
    update.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TallmasksError, match=r"updates/mnist\.safetensors"):
        load_bundle(made.folder).update("mnist", "wide")


def test_all_problems_are_reported_at_once(tmp_path):
    """A user would see the second damaged file only after repairing the first."""
    made = make(tmp_path, include_base=True)
    manifest = json.loads((made.folder / "bundle.json").read_text())
    included = sum(file["bytes"] for name, file in manifest["files"].items() if name.startswith("base/"))
    total = sum(file["bytes"] for file in manifest["files"].values())
    assert load_bundle(made.folder).manifest.size == total - included > 0
    update = made.folder / manifest["updates"]["mnist"]
    update.chmod(0o644)
    update.write_bytes(update.read_bytes()[:-1] + b"\xff")
    (made.folder / manifest["updates"][TASKS[1]]).unlink()
    (made.folder / "base/base.safetensors").write_bytes(b"short")
    (made.folder / "updates/stranger.safetensors").touch()
    problems = verify_bundle(made.folder)
    for name in ("mnist.safetensors", "is missing", "base.safetensors", "stranger.safetensors"):
        assert sum(name in problem for problem in problems) == 1
    assert main(["verify", str(made.folder)]) == 1


@pytest.mark.long
def test_a_dry_run_of_a_large_model_is_about_the_whole(tmp_path, monkeypatch, capsys):
    """The size of a large model, of which a dry run encodes a part, would be that of the part."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    base = draw.standard_normal((6000, 6000), np.float32)
    base[:100] = 0
    for name, values in {"base": base, "cars": base + 0.01 * draw.standard_normal(base.shape, np.float32)}.items():
        save_arrays({"w": values.astype(np.float16)}, f"{name}.safetensors")
    call = ["compress", "--base", "base.safetensors", "--task", "cars=cars.safetensors", "--method", "lossless"]
    assert main([*call, "--dry-run", "-o", "bundle"]) == 0
    (foretold,) = re.findall(r"write  lossless: about ([\d.]+) MB", capsys.readouterr().out)
    assert main([*call, "-o", "bundle"]) == 0
    size = Path("bundle/updates/cars.safetensors").stat().st_size
    assert float(foretold) == pytest.approx(size / 1e6, rel=0.05)
