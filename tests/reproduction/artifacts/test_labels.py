"""Labels of artifacts: a file is refused if its content has changed."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from reproduction.artifacts import labels
from reproduction.artifacts.folders import set_aside
from reproduction.artifacts.labels import Damaged, as_metadata, check, digest_of, write_json
from reproduction.plan.node import STAGES, Node
from reproduction.plan.project import (
    Files,
    Index,  # noqa: F401  (declares every stage)
    damaged_artifacts,
)
from strategies import no_deadline
from tallmasks.cli.main import main
from tallmasks.io.tensor_files import load_state, open_tensors, write_tensors

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
    write_tensors(path, state, as_metadata(made) | (extra or {"thresholds": '{"0.2": 0.5}'}))
    path.chmod(0o644)
    return path


def evaluation_at(folder, value=EVALUATION, **params):
    made = recipe("evaluation", **(params or PARAMS))
    path = folder / f"thing-{digest_of(made)}.json"
    write_json(path, value, made)
    path.chmod(0o644)
    return path


def content(path):
    """Values and metadata of an artifact."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return {name: array.tolist() for name, array in load_state(path).items()} | open_tensors(path).metadata


MUTATIONS = {
    "bit": lambda data, at, byte: data[:at] + bytes([data[at] ^ (1 << byte % 8)]) + data[at + 1 :],
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
def test_a_mutated_file_is_refused_or_has_the_same_content(tmp_path_factory, data, write, mutation):
    """A flipped bit on the disk would change a published accuracy."""
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


def test_other_values_under_the_right_recipe_are_refused(tmp_path):
    """Zeroed or exchanged tensors would be merged."""
    path = tensors_at(tmp_path)
    state, metadata = load_file(path), dict(open_tensors(path).metadata)
    for values, facts in (
        ({**state, "a": 0 * state["a"]}, metadata),
        ({"a": state["b"], "b": state["a"]}, metadata),
        (state, metadata | {"thresholds": '{"0.2": 0.1}'}),
        (state, {key: fact for key, fact in metadata.items() if key != "content"}),
    ):
        save_file(values, path, facts)
        with pytest.raises(Damaged, match=path.name):
            check(path)


def test_files_that_are_set_aside_are_kept(tmp_path):
    """Users would lose files; a link's target can be in DVC's cache."""
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


def chain(folder: Path) -> dict[str, Node]:
    """Nodes a -> b -> c; the files of all exist."""
    nodes: dict[str, Node] = {}
    for name, needed in (("a", ""), ("b", "a"), ("c", "b")):
        inputs = {"task_vectors": (nodes[needed],)} if needed else {}
        nodes[name] = Node(STAGES["task_vector"], "tiny", name, {"name": name}, inputs)
        write(folder, nodes[name], seed=0)
    return nodes


def write(folder: Path, node: Node, seed: int) -> None:
    draw = np.random.default_rng(seed)
    write_tensors(folder / node.path, {"a": draw.standard_normal(3)}, as_metadata(node.recipe))


@pytest.mark.parametrize("damage", ["cut", "link", "of another recipe"])
def test_a_damaged_artifact_is_missing_but_those_made_from_it_are_not(tmp_path, damage):
    """A damaged input would be used, or remaking it would rerun everything downstream."""
    nodes = chain(tmp_path)
    path = tmp_path / nodes["a"].path
    assert not Files(tmp_path).missing(nodes.values()) and not damaged_artifacts(tmp_path)
    path.chmod(0o644)
    content = path.read_bytes()
    path.unlink()
    if damage == "link":
        path.symlink_to(path.name)
    else:
        path.write_bytes(content[:-1] if damage == "cut" else (tmp_path / nodes["b"].path).read_bytes())
    assert [one.path for one in damaged_artifacts(tmp_path)] == [path]
    assert [node.slug for node in Files(tmp_path).missing(nodes.values())] == ["a"]
    path.unlink()
    files = Files(tmp_path)
    assert nodes["a"].path in str(files.problem(nodes["a"]))
    write(tmp_path, nodes["a"], seed=99)
    assert not files.missing(nodes.values()), "noticed in the same process"


def test_results_need_all_their_files_unchanged_and_their_recipe(tmp_path):
    """A table for other parameters, or an edited one, would count as the result."""
    node, other = (Node(STAGES["zeroshot"], "tiny", "two", {"tasks": tasks}) for tasks in (["a"], ["b"]))
    table, provenance = (tmp_path / file for file in node.files)
    table.parent.mkdir(parents=True)
    table.write_text("task,accuracy")
    write_json(provenance, {labels.FILES: {table.name: hashlib.sha256(table.read_bytes()).hexdigest()}}, node.recipe)
    files = Files(tmp_path)
    assert files.there(node) and not files.there(other)
    table.write_text("task,accuracy,edited")
    assert "zeroshot.csv" in str(files.problem(node))
    table.unlink()
    assert "zeroshot.csv" in str(files.problem(node))


def test_verify_notices_an_edited_provenance(tmp_path, capsys):
    """A table would count as made from checkpoints, parameters or on a machine that it was not made with."""
    made = recipe("zeroshot") | {"inputs": {"evaluations": ["aa", "bb"]}, "sources": {"weights": "cc"}}
    path = tmp_path / "provenance.json"
    write_json(path, {labels.FILES: {}, "machine": "this one"}, made)
    text = path.read_text()
    assert main(["verify", str(tmp_path)]) == 0
    for value in ("aa", "mnist", "cc", "this one", "zeroshot"):
        path.write_text(text.replace(f'"{value}"', '"another"'))
        assert main(["verify", str(tmp_path)]) == 1, value
        assert f"{path} has changed" in capsys.readouterr().out
    (tmp_path / "bundle.json").write_text("{}")
    main(["verify", str(tmp_path)])
    assert f"{path} has changed" in capsys.readouterr().out, "also in the folder of a bundle"
