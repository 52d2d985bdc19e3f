"""Damaged and forged task bundles, ten thousand in all: each is refused, or gives exactly the right weights."""

import copy
import hashlib
import json
import random
import shutil

import pytest
import torch

from tallmasks.bundles.codings import LowRank, Signs, Ternary, Whole
from tallmasks.bundles.loaded_bundle import load_bundle
from tallmasks.bundles.manifest import digest_of
from tallmasks.bundles.verification import verify_bundle
from tallmasks.store.errors import TallmasksError
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from task_bundles import all_same, expected, make, make_own

FORMS = {
    "a.weight": (torch.bfloat16, (3, 7)),
    "b.bias": (torch.float32, (9,)),
    "c": (torch.float16, ()),
    "frozen": (torch.float32, (4,)),
    "steps": (torch.int64, (2,)),
}
TASKS = ("x", "y", "z")
CODINGS = {"a.weight": LowRank((3, 7), 2), "b.bias": Ternary((9,)), "c": Whole(()), "frozen": Signs((4,))}
CASES = {"bfloat16": 2500, "int8": 2500, "own": 300}
"""For each of two bundles: of masks over a merged vector of a dtype, or of each task's own tensors."""


class Bench:
    """A bundle whose files are damaged one at a time, and what its models must be."""

    def __init__(self, folder, dtype, include_base):
        facts = {"forms": FORMS, "tasks": TASKS, "include_base": include_base}
        self.made = make_own(folder, CODINGS, **facts) if dtype == "own" else make(folder, dtype, **facts)
        self.folder = self.made.folder
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o755)
        self.files = {str(p.relative_to(self.folder)): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
        self.facts = json.loads(self.files["bundle.json"])
        self.base = None if include_base else open_checkpoint(self.made.base_file)
        self.wanted = self.made.wanted if dtype == "own" else {task: expected(self.made, task) for task in TASKS}

    def write(self, name, content):
        (self.folder / name).write_bytes(content)

    def write_facts(self, facts, forged):
        if forged:
            facts["digest"] = digest_of(facts)
        self.write("bundle.json", json.dumps(facts).encode())

    def repair(self, names):
        for name in names:
            path = self.folder / name
            if path.is_symlink() or path.is_dir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            self.write(name, self.files[name])

    def outcome(self, forged):
        """How many of the tasks gave weights; every other one was refused. Anything else fails."""
        try:
            bundle = load_bundle(self.folder, self.base)
        except TallmasksError as error:
            assert "\n" not in str(error), error
            return 0
        given = 0
        for task in bundle.tasks:
            try:
                found = bundle.state_dict(task)
                bundle.update(task, "a.weight", 1, 5)
            except TallmasksError as error:
                assert "\n" not in str(error), error
                continue
            given += 1
            assert forged or all_same(found, self.wanted[task])
        return given


def flip(rng, content):
    """Some bits of a file the other way."""
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(rng, content):
    """A file that ends early."""
    return content[: rng.randrange(len(content))]


def nested(depth):
    inner: object = 1
    for _ in range(depth):
        inner = [inner]
    return inner


STRANGE = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, 1.5, -0.0, 1e308, "", ".", "..", "/etc/passwd",
    "signs", "low_rank:1", "low_rank:9", "masks/x", "masks/../bundle.json", "masks/x.safetensors",
    "masks/\0.safetensors",
    "base/../merged.safetensors", "base/", "merged.safetensors", "F32", "F64", "I8", "int8", "float16", "\ud800",
    "a/b", "../../x@y", "a" * 5000, "x", "c", "frozen", [], [[]], [0], [-1], [2**40, 2**40], [2**62, 0], [0,
    2**59], [1.0], [True], ["x"], ["x", "x"], ["x", 1], {}, {"x": 1}, {"": ""}, {"a.weight": "c"}, {"c2": "c"},
    {"steps": "c"}, {"sha256": "0" * 64, "bytes": 0}, nested(50),
]  # fmt: skip


def edit(rng, facts):
    """Some values of bundle.json changed, deleted, added, renamed or exchanged, at any depth."""
    facts = copy.deepcopy(facts)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place, keys = facts, []
        while isinstance(place, (dict, list)) and place and (not keys or rng.random() < 0.7):
            keys.append((place, rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))))
            place = place[keys[-1][1]]
        if not keys:
            continue
        owner, key = keys[-1]
        kind = rng.random()
        if kind < 0.5:
            owner[key] = copy.deepcopy(rng.choice(STRANGE))
        elif kind < 0.7:
            del owner[key]
        elif isinstance(owner, dict) and kind < 0.8:
            owner[rng.choice(["new", "..", "x", "c", "base/x", "masks/w.safetensors", "\ud800"])] = owner.pop(key)
        elif isinstance(owner, dict) and kind < 0.9:
            other = rng.choice(list(owner))
            owner[key], owner[other] = owner[other], owner[key]
        elif isinstance(owner, dict):
            owner[rng.choice(["new", "b.bias", "/x"])] = copy.deepcopy(owner[key])
        else:
            owner.append(copy.deepcopy(owner[key]))
    return facts


def forge_file(rng, bench, name):
    """Damage in a file whose sha256 and size bundle.json then says: for the safetensors header, mostly."""
    content = bench.files[name]
    header = int.from_bytes(content[:8], "little")
    damaged = bytearray(content)
    kind = rng.random()
    if kind < 0.5:
        for _ in range(rng.choice([1, 2, 5])):
            damaged[8 + rng.randrange(header)] = rng.choice(b'0123456789"[]{},:FIU8632.')
    elif kind < 0.6:
        damaged[rng.randrange(8)] ^= 1 << rng.randrange(8)
    else:
        damaged = bytearray(rng.choice([flip, cut])(rng, content))
    facts = copy.deepcopy(bench.facts)
    facts["files"][name] = {"sha256": hashlib.sha256(damaged).hexdigest(), "bytes": len(damaged)}
    bench.write(name, bytes(damaged))
    bench.write_facts(facts, True)


@pytest.mark.parametrize("include_base", [False, True])
@pytest.mark.parametrize(
    ("dtype", "cases"), [*CASES.items(), *(pytest.param(dtype, 60, marks=pytest.mark.short) for dtype in CASES)]
)
def test_damaged_and_forged_bundles(tmp_path, dtype, cases, include_base, monkeypatch):
    """A file damaged on its way would give slightly wrong models; a forged one would crash or run something."""
    monkeypatch.setattr("tallmasks.store.hub.reachable", lambda: False)
    monkeypatch.setattr("tallmasks.store.parallel.cores", lambda: 1)  # for five small tensors a pool is slow to start
    bench = Bench(tmp_path, dtype, include_base)
    assert bench.outcome(False) == 3
    rng = random.Random(f"{dtype} {include_base}")
    names = list(bench.files)
    given = 0
    for case in range(cases):
        kind, forged = rng.random(), False
        name = rng.choice(names)
        content = bench.files[name]
        touched = [name]
        if kind < 0.3:
            bench.write(name, flip(rng, content))
        elif kind < 0.36:
            bench.write(name, cut(rng, content))
        elif kind < 0.48:
            bench.write(name, bench.files[rng.choice([other for other in names if other != name])])
        elif kind < 0.5:
            (bench.folder / name).unlink()
            if rng.random() < 0.5:
                (bench.folder / name).mkdir()
        elif kind < 0.85:
            touched, forged = ["bundle.json"], rng.random() < 0.7
            facts = edit(rng, bench.facts)
            try:
                bench.write_facts(facts, forged)
            except (ValueError, RecursionError, TypeError):
                bench.write_facts(facts, False)
        else:
            name = rng.choice([n for n in names if n.endswith(".safetensors")])
            touched, forged = [name, "bundle.json"], True
            forge_file(rng, bench, name)
        changed = any((bench.folder / n).is_dir() or not (bench.folder / n).exists() for n in touched)
        given += bench.outcome(forged)
        if case % 10 == 0 and not forged and "README.md" not in touched and kind < 0.5:
            changed = changed or (bench.folder / name).read_bytes() != content
            assert bool(verify_bundle(bench.folder)) == changed
        bench.repair(touched)
    assert bench.outcome(False) == 3 and 0 < given < cases * 3


@pytest.mark.short
@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"null", b"{", b'{"format": "tallmasks/bundle/2"}', b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe",
        b'{"format": "tallmasks/bundle/1", "x": NaN}', b'{"format": "tallmasks/bundle/1", "x": 1e999}',
        b'{"format": "tallmasks/bundle/1", "x": ' + b"9" * 5000 + b"}",
        b'{"format": "tallmasks/bundle/1", "x": "\\ud800"}', b'{"format": "tallmasks/bundle/1", "digest": "0"}',
        b'{"format": "tallmasks/bundle/1", "x": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=range(14),
)  # fmt: skip
def test_any_bundle_json_is_refused_in_a_line(tmp_path, text):
    """A file from somebody would end the program with a traceback, or never."""
    (tmp_path / "bundle.json").write_bytes(text)
    with pytest.raises(TallmasksError, match=r"bundle\.json") as error:
        load_bundle(tmp_path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    assert verify_bundle(tmp_path) == [str(error.value)]


@pytest.mark.short
def test_a_large_bundle_json_is_refused_before_it_is_parsed(tmp_path):
    """60 megabytes would take two gigabytes of memory to refuse."""
    with (tmp_path / "bundle.json").open("wb") as file:
        file.truncate((1 << 24) + 1)
    with pytest.raises(TallmasksError, match=r"bundle\.json is larger than 16777216 bytes"):
        load_bundle(tmp_path)
