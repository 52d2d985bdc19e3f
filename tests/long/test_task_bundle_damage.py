"""Damaged and forged task bundles, thousands of them: each is refused, or gives exactly the right weights."""

import copy
import hashlib
import json
import random
import resource
import shutil
from contextlib import suppress

import pytest
import torch

from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.manifest import bundle_digest
from tallmasks.bundles.verification import verify_bundle
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from task_bundles import METHODS, all_same, make

FORMS = {
    "a.weight": (torch.bfloat16, (3, 7)),
    "b.bias": (torch.float32, (9,)),
    "c": (torch.float16, ()),
    "frozen": (torch.float32, (4,)),
    "steps": (torch.int64, (2,)),
}
TASKS = ("x", "y", "z")
CASES = 1500
"""For each of two bundles of a method."""
STRANGE = [
    None, True, 0, -1, 2**31, 2**64, 10**400, 1.5, 1e308, "", "..", "/etc/passwd", "multiples", "differences", "\ud800",
    "masks/../bundle.json", "masks/x.safetensors", "masks/\0.safetensors", "a" * 5000, "x", "c", "frozen", [], [[]],
    [2**40, 2**40], [2**62, 0], [0, 2**59], ["x", "x"], ["x", 1], {}, {"x": 1}, {"a.weight": "c"}, {"steps": "c"},
]  # fmt: skip


def places(facts):
    """Every value at any depth: what it lies in, and its key there."""
    for key in facts if isinstance(facts, dict) else range(len(facts)):
        yield facts, key
        if isinstance(facts[key], (dict, list)):
            yield from places(facts[key])


def edited(rng, facts):
    """Some values of bundle.json changed, deleted, renamed or repeated, and its digest made to fit."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        owner, key = rng.choice(list(places(facts)))
        way = rng.random()
        if way < 0.5:
            owner[key] = copy.deepcopy(rng.choice(STRANGE))
        elif way < 0.7:
            del owner[key]
        elif isinstance(owner, dict):
            owner[rng.choice(["new", "..", "x", "c", "base/x", "masks/w.safetensors", "/x"])] = owner.pop(key)
        else:
            owner.append(copy.deepcopy(owner[key]))
    return facts


def flipped(rng, content, start=0, stop=None):
    """A few bits of a file the other way."""
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        damaged[rng.randrange(start, stop or len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def damaged(rng, files):
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
        facts = edited(rng, facts)
    else:
        name = rng.choice([name for name in files if name.endswith(".safetensors")])
        header = int.from_bytes(files[name][:8], "little")
        start, stop = rng.choice([(0, 8), (8, 8 + header), (8 + header, None), (8 + header, None)])
        files = files | {name: flipped(rng, files[name], start, stop)}
        facts["files"][name] = {"sha256": hashlib.sha256(files[name]).hexdigest(), "bytes": len(files[name])}
    with suppress(ValueError):  # of what is no JSON
        facts["digest"] = bundle_digest(facts)
    return files | {"bundle.json": json.dumps(facts).encode()}, True


@pytest.mark.parametrize("include_base", [False, True])
@pytest.mark.parametrize("cases", [CASES, pytest.param(60, marks=pytest.mark.short)])
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
    assert 0 < sum(given(*damaged(rng, files)) for _ in range(cases)) < cases * 3
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
