"""Artifacts that are damaged, or whole with other values, before DVC knows them."""

from collections.abc import Callable
from pathlib import Path

from project import Project
from tallmasks.store.tensor_files import load_state, open_tensors, write_tensors


def forge(path: Path) -> bytes:
    """Give an artifact other values with right digests, as no accident does; what it was."""
    content, metadata, state = path.read_bytes(), dict(open_tensors(path).metadata), load_state(path)
    path.unlink()
    write_tensors(path, {name: 2 * tensor for name, tensor in state.items()}, metadata)
    return content


def test_what_followed_from_damage_is_made_again(project: Project, copies: Callable[[], Project]) -> None:
    """A table made from a damaged task vector would vouch for itself, also after the vector was set right."""
    honest = copies()
    for some in (honest, project):
        some.benchmark("new", ["mnist", "dtd"])
    honest.snakemake("all")
    vector = project.one("store/tiny/derived/task_vectors/dtd-s0-*.safetensors")
    content = forge(vector)
    project.snakemake("results/tiny/new/table.csv")
    assert project.path("results/tiny/new/table.csv").exists()
    assert "made from" in project.tallmasks("why", "results/tiny/three/table.csv").output  # the other way round
    vector.unlink()
    vector.write_bytes(content)

    table = "results/tiny/new/table.csv"
    assert (
        "was made from another content than store/tiny/derived/task_vectors/dtd"
        in project.tallmasks("why", table).output
    )
    expected = {"merge": 1, "mask": 1, "evaluate": 3, "consensus": 1, "results": 1}
    assert project.dry_run("all").planned == expected
    repaired = project.copy(project.root.parent / "repaired")
    assert project.snakemake("all").jobs == expected
    assert project.sha256("store", "results") == honest.sha256("store", "results")
    repaired.dvc("repro")
    assert repaired.sha256("store", "results") == honest.sha256("store", "results")
