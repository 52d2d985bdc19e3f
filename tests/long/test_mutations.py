"""Every kind of file of the store and of the results, mutated: nothing is believed, and nothing stays wrong."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from project import Project

RUNS = 12
"""How often a command may have to be called: each call finds what lies one step further back."""


def counted_up(path: Path, draw: random.Random) -> None:
    """An accuracy that somebody would like to have."""
    text = path.read_text()
    places = [place for place, character in enumerate(text) if character.isdigit() and text[place - 1] in " [,"]
    place = draw.choice(places or [0])
    path.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10 if places else 'x'}{text[place + 1 :]}")


def mutate(path: Path, others: list[Path], draw: random.Random) -> None:
    """Damage one file in a way that suits its kind."""
    path.chmod(0o644)
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little") if path.suffix == ".safetensors" else 0
    place = draw.randrange(draw.choice([0, header]), len(content))
    ways: list[Callable[[], object]] = [
        lambda: path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]),
        lambda: path.write_bytes(content[:place]),
        lambda: path.write_bytes(content[:place] + bytes(len(content) - place)),
        lambda: path.write_bytes(draw.randbytes(len(content))),
        lambda: path.unlink(),
    ]
    if path.suffix not in (".safetensors", ".png", ".pdf"):
        ways += [lambda: counted_up(path, draw)]
    if twins := [other for other in others if other.parent == path.parent and other != path and other.is_file()]:
        ways += [lambda: path.write_bytes(draw.choice(twins).read_bytes())]
    if path.suffix in (".safetensors", ".json") and "store" in path.parts:
        ways += [lambda: (path.unlink(), path.mkdir())]
    draw.choice(ways)()


def mutate_all(project: Project, seed: int) -> int:
    """Damage every file of the store and of the results; how many they are."""
    draw = random.Random(seed)
    files = [project.path(name) for name in project.sha256("store", "results")]
    for path in files:
        mutate(path, files, draw)
    return len(files)


def repaired(project: Project, *command: str) -> None:
    """Call a command until it succeeds, which it must within RUNS calls, and without a traceback."""
    for _ in range(RUNS):
        run = project.run(*command, check=False)
        assert "Traceback (most recent call last)" not in run.output, run.output
        if not run.status:
            return
    raise AssertionError(run.output)


def by_snakemake(project: Project, target: str) -> None:
    """Each call goes on past a job that has met damage: so there are fewer."""
    repaired(project, "snakemake", "-j2", "--keep-going", "--", target)


def assert_nothing_is_wrong(project: Project, before: dict[str, str]) -> None:
    """Results are byte for byte what they were; what is still damaged in the store is what nobody needed."""
    after = project.sha256("store", "results")
    wrong = {name for name, digest in before.items() if after.get(name) not in (digest, None)}
    verified = project.run("tallmasks", "verify", check=False).output
    assert "Traceback" not in verified
    assert wrong <= {line.split(" ")[0] for line in verified.splitlines()}
    assert not {name for name in wrong | (before.keys() - after.keys()) if name.startswith("results/")}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("engine", ["snakemake", "dvc"])
def test_mutated_files_are_found(project: Project, engine: str, seed: int) -> None:
    """Somebody would publish a number that a bad disk, a hand or a wrong copy made; or DVC commit it as the truth."""
    project.benchmark("new", ["mnist", "dtd"])
    project.snakemake("all")  # which DVC does not know yet
    before = project.sha256("store", "results")
    assert mutate_all(project, seed) == len(before) > 60
    if engine == "snakemake":
        by_snakemake(project, "all")
        assert_nothing_is_wrong(project, before)
        return
    assert ".tallmasks/damaged" in project.dvc("repro", fails=True).output
    repaired(project, "dvc", "repro")
    assert project.sha256("store", "results") == before
    assert "0 problems" in project.run("tallmasks", "verify").output
    assert json.loads(project.path("results/tiny/new/metrics.json").read_text())


@pytest.mark.xdist_group("paper")
def test_mutated_files_behind_tables_and_figures_are_found(paper: Project, tmp_path: Path) -> None:
    """A damaged subset, order, threshold, figure or table would be shown."""
    copy = paper.copy(tmp_path / "copy")
    before = copy.sha256("store", "results")
    assert mutate_all(copy, 200) > 150
    by_snakemake(copy, "paper")
    by_snakemake(copy, "report")
    assert_nothing_is_wrong(copy, {name: digest for name, digest in before.items() if "report" not in name})
