"""Files of task bundles: their format, invalid bundles, and bundles on the hub."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from loopback_hub import COMMIT, REPOSITORY, loopback_hub
from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_writer import BundleContents, new_bundle
from tallmasks.bundles.codings import in_few_bits
from tallmasks.bundles.manifest import MASKS, bundle_digest, is_safe, read_manifest, task_files
from tallmasks.bundles.verification import verify_bundle
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksError
from tallmasks.operations.compress import compress
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from task_bundles import TASKS, all_same, as_stored, expected, make

BITS = {"x": np.ones(2, np.uint8)}


@pytest.fixture
def base(tmp_path):
    """A base with one tensor of 16 values."""
    save_file({"w": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    return open_checkpoint(tmp_path / "model.safetensors")


def test_the_files_follow_the_documented_format(tmp_path):
    """A bundle could not be read with safetensors and the description of the format alone."""
    made = make(tmp_path, "3 bits", mask_lambda={"mnist": 0.4})
    manifest = json.loads((made.folder / "bundle.json").read_text())
    assert manifest["format"] == "tallmasks/bundle/1" and manifest["digest"] == bundle_digest(manifest)
    assert manifest["tasks"] == list(TASKS) and manifest["mask_lambda"] == {
        "mnist": 0.4,
        TASKS[1]: None,
        TASKS[2]: None,
    }
    assert list(manifest["tensors"]) == sorted(n for n in made.base if n != "steps")
    digest = hashlib.sha256(made.base["frozen"].view(torch.uint8).numpy().tobytes()).hexdigest()
    frozen = {"shape": [4, 4], "dtype": "BF16", "stored": False, "base_sha256": digest}
    assert manifest["tensors"]["frozen"] == frozen
    assert manifest["masks"][TASKS[1]] == "masks/two%20words%2F..%2Fx.safetensors"
    assert {str(p.relative_to(made.folder)) for p in made.folder.rglob("*") if p.is_file()} == {
        "bundle.json", "README.md", *manifest["files"]
    }  # fmt: skip
    merged = load_file(made.folder / "merged.safetensors")
    coded = {"a.weight": 35, "short": 45, "tall": 17, "wide": 72}  # values per scale
    assert manifest["codings"] == {name: f"levels:3:{group}" for name, group in coded.items()}
    endings = (".index", ".levels", ".scale")
    assert merged.keys() == {*made.merged, *(f"{name}{ending}" for name in coded for ending in endings)} - {*coded}
    planes = np.unpackbits(merged["tall.index"].numpy(), axis=1, bitorder="little").astype(int)
    assert planes.shape == (3, 408)
    tau = merged["tall.levels"].numpy()[planes[0] + 2 * planes[1] + 4 * planes[2]].reshape(24, 17)
    values, kept = tau * merged["tall.scale"].numpy()[:, None], made.merged["tall"] != 0
    np.testing.assert_array_equal(values[kept], as_stored(made.merged["tall"], "3 bits")[kept])
    masks = load_file(made.folder / manifest["masks"]["mnist"])
    bits = np.unpackbits(masks["short"].numpy(), bitorder="little")
    kept = made.masks["mnist"]["short"] & (made.merged["short"] != 0)
    np.testing.assert_array_equal(bits[:45], kept.reshape(-1))
    assert bits.size == 48 and not bits[45:].any()
    with pytest.raises(TallmasksError, match=str(made.folder)):
        make(tmp_path, "3 bits")
    assert verify_bundle(made.folder) == []


def test_the_card_names_the_base_and_shows_how_to_load(tmp_path, base):
    """A user who finds a bundle on the hub would not know its base, nor how to load it."""
    base = replace(base, origin={"repository": "someone/model", "revision": "a" * 40})
    contents = BundleContents("tall_mask", base, ["x|`y` # z"], mask_lambda={"x|`y` # z": 0.3}, scale={})
    with new_bundle(tmp_path / "bundle", contents) as new:
        new.scale["x|`y` # z"] = 0.5
        new.write("w", 0, np.ones(16, np.float32), {"x|`y` # z": np.array([1, 3], np.uint8)})
    card = (tmp_path / "bundle/README.md").read_text()
    assert 'base_model: "someone/model"\nlibrary_name: tallmasks\n' in card.split("---")[1]
    assert "| x\\|\\`y\\` \\# z | 0.3 | 0.5 | 18.8% |" in card
    assert "load_bundle(" in card and "apply_(model, 'x|`y` # z')" in card
    assert load_bundle(tmp_path / "bundle", base).manifest.scale == {"x|`y` # z": 0.5}


def test_a_name_with_a_line_break_is_refused(tmp_path):
    """An untrusted bundle could print lines that look like those of a command."""
    text = (make(tmp_path).folder / "bundle.json").read_text()
    of_alias = json.loads(text)
    of_alias["aliases"]["a\nerror: b"] = min(of_alias["tensors"])
    of_task = json.loads(text.replace('"mnist"', json.dumps("a\x1b[2J\nerror: b")))
    for value, said in ((of_alias, r"'a\\nerror: b'"), (of_task, r"'a\\x1b\[2J\\nerror: b'")):
        content = json.dumps(value | {"digest": bundle_digest(value)}).encode()
        with pytest.raises(TallmasksError, match=said):
            read_manifest(content, "bundle.json")


@pytest.mark.parametrize(
    "names",
    [{"w": "x", "v": "x"}, {"w": "v"}, {"w": "head"}, {"tied": "v"}, {"v": "__metadata__"}, {"head": "tied"}],
)
def test_two_tensors_of_one_name_are_refused(tmp_path, names):
    """An edited bundle gave a file that no library reads, and `verify` found no fault."""
    folder, content = tmp_path / "bundle", {"w": torch.ones(40, 40), "v": torch.zeros(40, 40)}
    save_file(content, tmp_path / "base.safetensors", {"tied": "w"})
    save_file({**content, "w": torch.eye(40), "head": torch.ones(5)}, tmp_path / "task.safetensors", {"tied": "w"})
    compress(tmp_path / "base.safetensors", {"a": tmp_path / "task.safetensors"}, folder)
    manifest = json.loads((folder / "bundle.json").read_text())
    for renamed in ({"w": "v", "v": "w"}, names):
        manifest["models"]["a"]["names"] = renamed
        manifest["digest"] = bundle_digest(manifest)
        (folder / "bundle.json").write_text(json.dumps(manifest))
        assert bool(verify_bundle(folder)) == (renamed is names)
    assert main(["export", str(folder), "--task", "a", "-o", str(tmp_path / "out.safetensors")]) == 1


def test_file_names_of_tasks_are_safe_and_unique():
    """A task's masks would overwrite another file, or those of another task."""
    tasks = ["../../etc/passwd", "/abs", "a\\b", "..", ".", "", "A", "a", "é", "e\u0301", "con:1", "x" * 300, "~"]
    files = task_files([*tasks, *(f"{'x' * 300}{i}" for i in range(3)), "%2E", "%2e", "x~", ".hidden"], MASKS)
    assert len({file.lower() for file in files.values()}) == len(files)
    for file in files.values():
        assert is_safe(file) and file.count("/") == 1 and len(file.encode()) < 150 and "/." not in file
    with pytest.raises(TallmasksError, match=r"ud800"):
        task_files(["\ud800"], MASKS)


@pytest.mark.parametrize(
    ("changes", "value", "message"),
    [
        ({}, np.nan, "tensor w .*NaN"),
        ({"dtype": "float16"}, 65520.0, "tensor w .*F16"),
        ({"dtype": "bfloat16"}, 3.4e38, "tensor w .*BF16"),
        ({"scale": {"x": float("nan")}}, 1, "x: .*nan"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(tmp_path, base, changes, value, message):
    """Every task's weights would be infinite, or the bundle could not be read."""
    values = np.ones(16, np.float32)
    values[5] = value
    before = set(tmp_path.iterdir())
    with (
        pytest.raises(TallmasksError, match=message),
        new_bundle(
            tmp_path / "out", BundleContents(**({"method": "sum", "base": base, "tasks": ["x"]} | changes))
        ) as new,
    ):
        new.write("w", 0, values, BITS)
    assert set(tmp_path.iterdir()) == before


def test_a_tensor_with_the_name_of_scales_is_refused(tmp_path):
    """A tensor would overwrite the scales of another one."""
    save_file({"w": torch.ones(2, 2), "w.scale": torch.ones(2)}, tmp_path / "base.safetensors")
    base = open_checkpoint(tmp_path / "base.safetensors")
    contents = BundleContents("sum", base, ["x"], codings={"w": in_few_bits((2, 2), 3)})
    with pytest.raises(TallmasksError, match=r"w\.scale"), new_bundle(tmp_path / "out", contents):
        pass


def test_rows_of_zeros_denormals_and_large_values(tmp_path):
    """A row of zeros or denormals would become NaN."""
    save_file({"w": torch.zeros(4, 16)}, tmp_path / "base.safetensors")
    values = np.zeros((4, 16), np.float32)
    values[1, :2] = [1e-45, -1e-45]
    values[2, :3] = [2e-43, -1e-43, 1e-45]
    values[3] = np.tile([3e38, -3e38], 8)
    base = open_checkpoint(tmp_path / "base.safetensors")
    with new_bundle(
        tmp_path / "out", BundleContents("sum", base, ["x"], codings={"w": in_few_bits((4, 16), 8)})
    ) as new:
        new.write("w", 0, values.reshape(-1), {"x": np.full(8, 255, np.uint8)})
    found = load_bundle(tmp_path / "out").state_dict("x")["w"].numpy()
    assert np.abs(found - values)[:3].max() < 1e-43 and not found[0].any()
    np.testing.assert_allclose(found[3], values[3], rtol=1e-2)


def test_only_the_files_of_one_task_are_downloaded(tmp_path, monkeypatch):
    """A user of one task would have to download the masks of all tasks."""
    made = make(tmp_path / "made", include_base=True)
    made.base_file.unlink()
    masks = json.loads((made.folder / "bundle.json").read_text())["masks"]
    with loopback_hub(made.folder, tmp_path / "cache") as server, monkeypatch.context() as patch:
        assert all_same(load_bundle(REPOSITORY).state_dict("mnist"), expected(made, "mnist"))
        assert set(masks.values()) & set(server.downloads) == {masks["mnist"]}
        patch.setattr("tallmasks.io.hub.reachable", lambda: False)
        (snapshot,) = (tmp_path / "cache").glob("**/snapshots/*")
        for spec in (REPOSITORY, f"{REPOSITORY}@{COMMIT}", snapshot):
            assert all_same(load_bundle(spec).state_dict("mnist"), expected(made, "mnist"))
        with pytest.raises(TallmasksError, match=f"hf download {REPOSITORY} masks/"):
            load_bundle(REPOSITORY).update("ümlaut", "wide")
        for missing in ("nobody/nothing", tmp_path / "nothing", "a/../b", "nul\0", "x" * 5000):
            with pytest.raises(TallmasksError):
                load_bundle(missing)


def test_links_out_of_the_folder_are_refused(tmp_path):
    """An untrusted bundle could read any file on this machine."""
    made = make(tmp_path)
    merged = made.folder / "merged.safetensors"
    merged.rename(tmp_path / "elsewhere")
    merged.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TallmasksError, match=r"merged\.safetensors"):
        load_bundle(made.folder).update("mnist", "wide")


def test_all_problems_are_reported_at_once(tmp_path):
    """A user would see the second damaged file only after repairing the first."""
    made = make(tmp_path, include_base=True)
    manifest = json.loads((made.folder / "bundle.json").read_text())
    mask = made.folder / manifest["masks"]["mnist"]
    mask.chmod(0o644)
    mask.write_bytes(mask.read_bytes()[:-1] + b"\xff")
    (made.folder / manifest["masks"][TASKS[1]]).unlink()
    (made.folder / "base/base.safetensors").write_bytes(b"short")
    (made.folder / "masks/stranger.safetensors").touch()
    (made.folder / ".gitattributes").touch()
    problems = verify_bundle(made.folder)
    assert len(problems) == 4 and not any("\n" in problem for problem in problems)
    for name in ("mnist.safetensors", "is missing", "base.safetensors", "stranger.safetensors"):
        assert sum(name in problem for problem in problems) == 1
    assert main(["verify", str(made.folder)]) == 1
    assert "bundle.json" in verify_bundle(tmp_path)[0]
