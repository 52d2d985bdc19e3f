"""What an artifact says of itself, and what becomes of one that was damaged: it is refused, or nothing was lost."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from strategies import no_deadline
from tallmasks.artifacts import labels
from tallmasks.artifacts.folders import set_aside
from tallmasks.artifacts.labels import Damaged, as_metadata, check, digest_of, facts_of, read_label, write_json
from tallmasks.commands import verify  # noqa: F401  (main imports it, which nobody may not)
from tallmasks.commands.main import main
from tallmasks.errors import TallmasksError, user_errors
from tallmasks.io.tensor_files import load_state, open_tensors, write_tensors
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.project import Store

COUNTS = {"validation": [20, 10], "test": [30, 40]}
EVALUATION = {
    "method": "tall_mask_task_arithmetic",
    "tasks": ["mnist", "svhn"],
    "total": COUNTS,
    "correct": {"validation": [18, 7], "test": [25, 31]},
    "scaling_coefficient": None,
    "mask_lambda": [0.2, 0.4],
    "grid": [0.2, 0.4],
    "curve": [[18, 17], [6, 7]],
}
PARAMS = {"method": "tall_mask_task_arithmetic", "tasks": ["mnist", "svhn"], "grid": [0.2, 0.4]}


def recipe(kind="task_vector", **params):
    return {"kind": kind, "version": 1, "params": params or {"task": "mnist"}, "inputs": {}, "sources": {}}


def tensors_at(folder, made=None, seed=0, extra=None):
    """A tensor artifact as a job writes it."""
    made = made or recipe()
    draw = np.random.default_rng(seed)
    state = {"a": draw.standard_normal((4, 3), np.float32), "b": draw.standard_normal((4, 3), np.float32)}
    path = folder / f"thing-{digest_of(made)}.safetensors"
    write_tensors(path, state, as_metadata(facts_of(made, {}, 1)) | (extra or {"thresholds": '{"0.2": 0.5}'}))
    path.chmod(0o644)
    return path


def evaluation_at(folder, value=EVALUATION, **params):
    made = recipe("evaluation", **(params or PARAMS))
    path = folder / f"thing-{digest_of(made)}.json"
    write_json(path, value, facts_of(made, {"heads": ["0" * 32 + "/12345678"]}, 1))
    path.chmod(0o644)
    return path


def content(path):
    """All that somebody could use of an artifact."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return {name: array.tolist() for name, array in load_state(path).items()} | open_tensors(path).metadata


PLACED = {"folder": Path.mkdir, "lost": lambda path: path.symlink_to("nowhere")}
"""What may lie in a file's place."""
MUTATIONS = {
    "bit": lambda data, at, byte: data[:at] + bytes([data[at] ^ (1 << byte % 8)]) + data[at + 1 :],
    "byte": lambda data, at, byte: data[:at] + bytes([byte]) + data[at + 1 :],
    "zeros": lambda data, at, byte: data[:at] + bytes(min(byte + 1, len(data) - at)) + data[at + byte + 1 :],
    "cut": lambda data, at, byte: data[:at],
    "longer": lambda data, at, byte: data + bytes([byte]) * (1 + at % 9),
    "swapped": lambda data, at, byte: data[:at] + data[at + 1 : at + 2] + data[at : at + 1] + data[at + 2 :],
    "digit": lambda data, at, byte: (
        data[:at] + (b"%d" % (byte % 10) if data[at : at + 1].isdigit() else b"") + data[at + 1 :]
    ),
}


@no_deadline
@given(st.data(), st.sampled_from([tensors_at, evaluation_at]), st.sampled_from(sorted(MUTATIONS)))
def test_a_mutated_file_is_refused_or_says_the_same(tmp_path_factory, data, write, mutation):
    """A flipped bit on a disk would be somebody's accuracy."""
    path = write(tmp_path_factory.mktemp("mutated"))
    before, whole = content(path), path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(MUTATIONS[mutation](whole, at, data.draw(st.integers(0, 255))))
    try:
        check(path)
    except Damaged as damaged:
        assert str(damaged).startswith(str(path)) and "\n" not in str(damaged)
    else:
        assert content(path) == before


def test_a_right_header_does_not_vouch_for_other_values(tmp_path):
    """Zeroed or exchanged tensors under the right recipe would be merged."""
    path = tensors_at(tmp_path)
    state, metadata = load_file(path), dict(open_tensors(path).metadata)
    for values, facts, said in (
        ({**state, "a": 0 * state["a"]}, metadata, "has other values"),
        ({"a": state["b"], "b": state["a"]}, metadata, "has other values"),
        (state, metadata | {"thresholds": '{"0.2": 0.1}'}, "seal is broken"),
        (state, {key: fact for key, fact in metadata.items() if key != "seal"}, "says nothing"),
    ):
        save_file(values, path, facts)
        with pytest.raises(Damaged, match=said):
            check(path)


@pytest.mark.parametrize("thing", ["folder", "lost", "nested", "list", "empty"])
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_what_is_no_artifact_at_all_is_refused_by_name(thing, suffix, tmp_path):
    """A folder in an artifact's place, or endless brackets, would end planning in a traceback."""
    path = tmp_path / f"thing-{'0' * 12}{suffix}"
    if thing in PLACED:
        PLACED[thing](path)
    else:
        path.write_bytes({"nested": b"[" * 200_000, "list": b"[1]", "empty": b""}[thing])
    with pytest.raises(Damaged, match=path.name):
        check(path)
    assert main(["verify", str(path)]) == 1


def test_what_is_set_aside_is_lost_to_nobody(tmp_path):
    """A link moved away would lead elsewhere, and what it leads to may be DVC's."""
    path, outside = Path("store/tiny/thing.safetensors"), tmp_path / "outside.safetensors"
    (tmp_path / path).parent.mkdir(parents=True)
    outside.touch()
    (tmp_path / path).symlink_to(outside)
    assert set_aside(path, tmp_path) == f"removed, a link to {outside}" and outside.exists()
    for _ in range(2):
        (tmp_path / path).write_text("damaged")
        moved = str(set_aside(path, tmp_path)).removeprefix("moved to ")
        assert (tmp_path / moved).read_text() == "damaged" and not (tmp_path / path).exists()
    assert set_aside(path, tmp_path) is None


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to read and write everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_may_not_be_read_or_written_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    """A store of somebody else's, or a disk that is mounted read-only, would end in a traceback."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "store" / "closed").mkdir(parents=True)
    unreadable = tensors_at(tmp_path / "store")
    (tmp_path / "store" / "closed").chmod(0)
    unreadable.chmod(0)
    with as_nobody():
        with pytest.raises(Damaged, match="cannot be read"):
            read_label(Path("store", unreadable.name))
        with (
            pytest.raises(TallmasksError, match=r"^store cannot be read or written by this user") as error,
            user_errors(),
        ):
            write_json(Path("store/new.json"), {}, {})
        assert "give the user the right" in str(error.value)
        assert main(["verify", "store"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: store/closed cannot be read or written") and said.count("\n") == 1


def test_a_disk_that_fails_is_told_by_a_file(tmp_path, monkeypatch):
    """Of several disks nobody would know which one to replace."""

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(TallmasksError, match=r"new\.json: Input/output error; the disk"), user_errors():
        write_json(tmp_path / "new.json", {}, {})


def test_verify_does_not_pass_what_it_did_not_look_at(tmp_path, capsys):
    """A misspelled folder, or half a copied bundle, would count as checked."""
    (tmp_path / "place").mkdir()
    for name in ("merged.safetensors", "x"):  # nothing, then a bundle without its bundle.json
        assert main(["verify", str(tmp_path / "place")]) == 1
        assert "nothing to check there" in capsys.readouterr().out
        (tmp_path / "place" / name).write_bytes(tensors_at(tmp_path).read_bytes())


def chain(folder: Path) -> dict[str, Node]:
    """Nodes a -> b -> c and d, all on disk, each recording what it was made from."""
    found: dict[str, Node] = {}
    for name, needed in (("a", ""), ("b", "a"), ("c", "b"), ("d", "")):
        inputs = {"task_vectors": (found[needed],)} if needed else {}
        found[name] = Node(STAGES["task_vector"], "tiny", name, {"name": name}, inputs)
    for node in found.values():
        write(folder, node, seed=len(found))
    return found


def write(folder: Path, node: Node, seed: int, machine: str = "") -> None:
    made_from = {
        role: [read_label(folder / needed.path).identity for needed in nodes] for role, nodes in node.inputs.items()
    }
    facts = facts_of(node.recipe, made_from, 1) | ({"machine": machine} if machine else {})
    draw = np.random.default_rng(seed)
    write_tensors(folder / node.path, {"a": draw.standard_normal(3)}, as_metadata(facts))


def test_what_followed_from_damage_is_wrong_and_nothing_else(tmp_path):
    """A table made from a damaged task vector would stay after the vector was set right."""
    nodes = chain(tmp_path)
    good = (tmp_path / nodes["a"].path).read_bytes()
    assert not any(Store(tmp_path).wrong(node) for node in nodes.values())
    write(tmp_path, nodes["a"], seed=99)  # whole, sealed, and not what its recipe makes
    for name in "bc":
        write(tmp_path, nodes[name], seed=98)
    assert not any(Store(tmp_path).wrong(node) for node in nodes.values())
    (tmp_path / nodes["a"].path).unlink()
    (tmp_path / nodes["a"].path).write_bytes(good)
    store = Store(tmp_path)
    assert store.wrong(nodes["b"]) == f"{nodes['b'].path} was made from another content than {nodes['a'].path} has now"
    assert "has to be made anew" in str(store.wrong(nodes["c"]))
    assert store.wrong(nodes["a"]) is None and store.wrong(nodes["d"]) is None
    assert [node.slug for node in store.missing([nodes["c"], nodes["d"]])] == ["b", "c"]
    (tmp_path / nodes["b"].path).unlink()  # as it is moved away to be made again
    assert "has to be made anew" in str(store.wrong(nodes["c"]))
    write(tmp_path, nodes["b"], seed=4)
    assert store.there(nodes["b"]) and not store.there(nodes["c"])  # seen in the same process


def test_an_artifact_that_is_made_again_concerns_nobody(tmp_path):
    """A lost or damaged input, remade with the same bytes or with another machine's, would cost the whole chain."""
    nodes = chain(tmp_path)
    path = tmp_path / nodes["a"].path
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    store = Store(tmp_path)
    assert "whole" in str(store.wrong(nodes["a"])) and store.wrong(nodes["b"]) is None
    path.unlink()
    path.symlink_to(path.name)
    assert "is a link to" in str(store.wrong(nodes["a"])) and store.wrong(nodes["b"]) is None
    path.unlink()
    assert [node.slug for node in Store(tmp_path).missing(nodes.values())] == ["a"]
    write(tmp_path, nodes["a"], seed=4)
    assert not Store(tmp_path).missing(nodes.values())
    path.unlink()
    write(tmp_path, nodes["a"], seed=77, machine="another processor")
    assert not Store(tmp_path).missing(nodes.values())
    path.unlink()
    write(tmp_path, nodes["a"], seed=77)  # on this one only damage gives other bits
    assert [node.slug for node in Store(tmp_path).missing(nodes.values())] == ["b", "c"]


def test_the_machine_is_named_with_all_that_decides_bits(monkeypatch):
    """Rounding on another processor, with other threads or libraries, would pass for damage."""
    here = labels.machine(2)
    assert "2 threads" in here and "torch" in here and here == labels.machine(2)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert labels.machine(2) != here != labels.machine(1)
