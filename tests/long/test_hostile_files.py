"""Files of a stranger, changed at random: no wrong value is read, no network reached, and errors are one line."""

import copy
import hashlib
import io
import json
import random
import resource
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pcodec import ChunkConfig, standalone
from safetensors.torch import load, save

from loopback_hub import loopback_hub
from small_models import made
from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.manifest import bundle_digest
from tallmasks.bundles.verification import verify_bundle
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints import known_tensors
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from task_bundles import METHODS, all_same, make


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(value: Any, draw: random.Random) -> Any:
    """A JSON value with one value or key replaced or removed."""
    value, odd = copy.deepcopy(value), draw.choice(STRANGE)
    path = draw.choice([*places(value)])
    if not path:
        return odd
    inner, last = value, path[-1]
    for key in path[:-1]:
        inner = inner[key]
    way = draw.choice(["replace", "replace", "rename", "remove"])
    if way == "replace":
        inner[last] = odd
    elif way == "rename" and isinstance(inner, dict):
        inner[str(odd)[:5000]] = inner.pop(last)
    else:
        del inner[last]
    return value


def damaged(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(data))
        match draw.choice(["byte", "byte", "remove", "copy"]):
            case "byte":
                data[place] = draw.randrange(256)
            case "remove":
                del data[place : place + draw.randint(1, 8)]
            case "copy":
                start = draw.randrange(len(data))
                data[place:place] = data[start : start + draw.randint(1, 30)]
    return bytes(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_file_of_torch_has_torchs_values_or_is_refused(zipped: bool, tmp_path: Path) -> None:
    """Weights would be merged that torch itself does not load."""
    tensors = {"a": torch.randn(4, 3), "half": torch.randn(5).half(), "brain": torch.randn(3).bfloat16()}
    tensors |= {"turned": tensors["a"].t(), "row": tensors["a"][1], "count": torch.arange(4), "none": torch.zeros(0, 2)}
    saved = io.BytesIO()
    torch.save({"state_dict": tensors, "epoch": 3}, saved, _use_new_zipfile_serialization=zipped)
    path, draw, read = tmp_path / "model.pt", random.Random(0), 0
    for _ in range(1500):
        if zipped:
            with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
                for name in old.namelist():
                    record = old.read(name)
                    new.writestr(name, damaged(record, draw) if name.endswith("data.pkl") else record)
        else:
            path.write_bytes(damaged(saved.getvalue(), draw))
        try:
            checkpoint = open_checkpoint(path)
        except TallmasksError:
            continue
        try:
            expected = torch.load(path, weights_only=True)
        except Exception:  # torch is stricter about what is not a tensor
            continue
        expected = next((one for one in expected.values() if isinstance(one, dict)), expected)
        assert sorted(checkpoint.names) == sorted(expected)
        for name, tensor in expected.items():
            stored = np.concatenate([*checkpoint.raw_pieces(name), np.empty(0, np.uint8)])
            assert stored.tobytes() == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), name
        read += 1
    assert read > 10


FORMS = {
    "a.weight": (torch.bfloat16, (3, 7)),
    "b.bias": (torch.float32, (9,)),
    "c": (torch.float16, ()),
    "frozen": (torch.float32, (4,)),
    "steps": (torch.int64, (2,)),
}
TASKS = ("x", "y", "z")
MANY = 1500
"""For each of two bundles of a method."""

STRANGE = [
    None, True, 0, -1, 2**31, 2**64, 10**400, 1.5, 1e308, "", "..", "/etc/passwd", "multiples", "bit_deltas", "\ud800",
    "masks/../bundle.json", "masks/x.safetensors", "masks/\0.safetensors", "a" * 5000, "x", "c", "frozen", [], [[]],
    [2**40, 2**40], [2**62, 0], [0, 2**59], ["x", "x"], ["x", 1], {}, {"x": 1}, {"a.weight": "c"}, {"steps": "c"},
]  # fmt: skip


def flipped(rng, content, start=0, stop=None):
    """A few bits of a file the other way."""
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        damaged[rng.randrange(start, stop or len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def with_other_streams(rng, content):
    """A file with the gaps, the values or both of a piece replaced, and with the right or wrong lengths."""
    tensors = load(content)
    if ".lengths" not in tensors:
        return flipped(rng, content)
    lengths = tensors[".lengths"].numpy().astype(np.int64)
    number = rng.randrange(len(lengths))
    stop, both = int(lengths[: number + 1].sum()), lengths[number].sum()
    parts = np.split(tensors[".streams"].numpy(), [stop - both, stop - lengths[number, 1], stop])
    for place in rng.choice([[0], [1], [0, 1]]):
        size, value = rng.choice([0, 1, 2, 2, 3, 9, 21, 2**20]), rng.choice([0, 0, 1, 3, 20, 2**31 - 1, 2**32 - 1])
        dtype = rng.choice(["u4", "u4", "i4", "i2", "u2", "u8"])
        values = np.full(size, value, np.uint64).astype(dtype)
        stream = standalone.simple_compress(values, ChunkConfig()) if size else b""
        parts[place + 1] = np.frombuffer(stream[: rng.choice([None, None, None, -3])], np.uint8)
        lengths[number, place] = parts[place + 1].size + rng.choice([0, 0, 0, 0, 1, -1, 2**31])
    changed = {".lengths": lengths.astype(np.uint32), ".streams": np.concatenate(parts)}
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    changed = {name: torch.from_numpy(array) for name, array in changed.items()}
    return save(tensors | changed, header.get("__metadata__"))


def damaged_bundle(rng, files):
    """The content of a bundle with one file damaged; and whether bundle.json is forged, and its digest with it."""
    name, facts, kind = rng.choice(list(files)), json.loads(files["bundle.json"]), rng.random()
    if kind < 0.3:
        return files | {name: flipped(rng, files[name])}, False
    if kind < 0.36:
        return files | {name: files[name][: rng.randrange(len(files[name]))]}, False
    if kind < 0.48:
        return files | {name: files[rng.choice(list(files))]}, False
    if kind < 0.5:
        return {other: content for other, content in files.items() if other != name}, False
    if kind < 0.85:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            facts = changed(facts, rng)
    else:
        name = rng.choice([name for name in files if name.endswith(".safetensors")])
        header = int.from_bytes(files[name][:8], "little")
        start, stop = rng.choice([(0, 8), (8, 8 + header), (8 + header, None), (8 + header, None)])
        is_flipped = rng.random() < 0.5
        forged = flipped(rng, files[name], start, stop) if is_flipped else with_other_streams(rng, files[name])
        files = files | {name: forged}
        facts["files"][name] = {"sha256": hashlib.sha256(files[name]).hexdigest(), "bytes": len(files[name])}
    with suppress(ValueError, TypeError, AttributeError):  # of what is no JSON, or no object
        facts["digest"] = bundle_digest(facts)
    items = [*facts.items()] if isinstance(facts, dict) else []
    rng.shuffle(items)  # the digest ignores the order
    return files | {"bundle.json": json.dumps(dict(items) or facts).encode()}, True


@pytest.mark.parametrize("include_base", [False, True])
@pytest.mark.parametrize("cases", [MANY, pytest.param(60, marks=pytest.mark.short)])
@pytest.mark.parametrize("method", METHODS)
def test_damaged_and_forged_bundles(tmp_path, method, cases, include_base, monkeypatch):
    """A file damaged on its way would give slightly wrong models; a forged one would crash, fill the memory, or run
    something."""
    monkeypatch.setattr("tallmasks.io.hub.reachable", lambda: False)
    monkeypatch.setattr("tallmasks.parallel.cores", lambda: 1)  # for five small tensors a pool is slow to start
    made = make(tmp_path, method, forms=FORMS, tasks=TASKS, include_base=include_base)
    base = None if include_base else open_checkpoint(made.base_file)
    files = {str(p.relative_to(made.folder)): p.read_bytes() for p in made.folder.rglob("*") if p.is_file()}
    folder, rng = tmp_path / "damaged", random.Random(f"{method} {include_base}")

    def given(content, forged):
        """The number of tasks that give weights; the others must fail with a one-line error."""
        shutil.rmtree(folder, ignore_errors=True)
        for name, part in content.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(part)
        found = 0
        try:
            bundle = load_bundle(folder, base)
            for task in bundle.tasks:
                weights, _ = bundle.state_dict(task), bundle.update(task, "a.weight", 1, 5)
                assert forged or all_same(weights, made.wanted[task])
                found += 1
        except TallmasksError as error:
            assert "\n" not in str(error), error
        assert found == 3 or verify_bundle(folder)
        return found

    assert given(files, False) == 3
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < sum(given(*damaged_bundle(rng, files)) for _ in range(cases)) < cases * 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 16  # KiB


@pytest.mark.short
@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b'{"format": "tallmasks/bundle/2"}', b"[" * 100_000, b"\xff\xfe",
        b'{"format": "tallmasks/bundle/1", "x": NaN}', b'{"format": "tallmasks/bundle/1", "x": ' + b"9" * 5000 + b"}",
        b'{"format": "tallmasks/bundle/1", "digest": "0"}', b" " * ((1 << 24) + 1),
    ],
    ids=range(9),
)  # fmt: skip
def test_any_bundle_json_is_refused_in_a_line(tmp_path, text):
    """A file from somebody would end the program with a traceback, or never."""
    (tmp_path / "bundle.json").write_bytes(text)
    with pytest.raises(TallmasksError, match=r"bundle\.json") as error:
        load_bundle(tmp_path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    assert verify_bundle(tmp_path) == [str(error.value)]


HOSTILE = [
    {"num_hidden_layers": 10**7},
    {"hidden_size": "x"},
    {"architectures": ["Trainer"]},
    {"model_type": "timm_backbone", "architectures": ["TimmBackbone"], "backbone": "hf-hub:evil/model"},
]


def test_a_configuration_neither_builds_without_end_nor_downloads(tmp_path):
    """A stranger's config.json could keep a command from ending, or download a repository that nobody named."""
    folder = tmp_path / "base"
    made("Dinov2Model").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"use_pretrained_backbone": True}
    with loopback_hub(folder, tmp_path / "cache") as server:
        known_tensors._process.cache_clear()  # one that knows of this hub
        for change in HOSTILE:
            (folder / "config.json").write_text(json.dumps(config | change))
            one = open_checkpoint(folder)
            assert not known_tensors.known_tensors(one.names, one), change
        known_tensors._process.cache_clear()
    assert not server.requests
