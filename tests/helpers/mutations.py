"""Damage of every kind, for every kind of file of the store and of the results."""

import random
from collections.abc import Callable
from pathlib import Path

from safetensors.numpy import load_file, save_file

from project import Project
from tallmasks.store.tensor_files import open_tensors

RUNS = 12
"""How often `snakemake` may have to be called: each call finds what lies one step further back."""


def flipped(content: bytes, draw: random.Random, start: int = 0) -> bytes:
    place = draw.randrange(start, len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def data_of(content: bytes) -> int:
    """Where the values of a safetensors file begin."""
    return 8 + int.from_bytes(content[:8], "little")


def zeroed(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(data_of(content), len(content))
    return content[:start] + bytes(len(content) - start)


def resaved(path: Path, draw: random.Random) -> None:
    """Other values under what the file says of itself, written by the library itself."""
    tensors, metadata = load_file(path), open_tensors(path).metadata
    name = draw.choice(sorted(tensors))
    same = [other for other in tensors if tensors[other].shape == tensors[name].shape and other != name]
    if same:
        tensors[name], tensors[same[0]] = tensors[same[0]], tensors[name]
    tensors[name] = tensors[name][::-1].copy() if not same else tensors[name]
    save_file(tensors, path, metadata)


def counted_up(path: Path, draw: random.Random) -> None:
    """An accuracy that somebody would like to have."""
    text = path.read_text()
    places = [place for place, character in enumerate(text) if character.isdigit() and text[place - 1] in " [,"]
    place = draw.choice(places)
    path.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}")


def mutate(path: Path, others: list[Path], draw: random.Random) -> str:
    """Damage one file, in a way that suits it; how."""
    path.chmod(0o644)
    content = path.read_bytes()
    ways: dict[str, Callable[[], object]] = {
        "bit": lambda: path.write_bytes(flipped(content, draw)),
        "cut": lambda: path.write_bytes(content[: draw.randrange(len(content))]),
        "empty": lambda: path.write_bytes(b""),
        "garbage": lambda: path.write_bytes(draw.randbytes(len(content))),
        "lost": lambda: path.unlink(),
    }
    if path.suffix == ".safetensors":
        ways |= {
            "bit of a value": lambda: path.write_bytes(flipped(content, draw, data_of(content))),
            "zeros": lambda: path.write_bytes(zeroed(content, draw)),
            "other values": lambda: resaved(path, draw),
        }
    elif path.suffix not in (".png", ".pdf"):
        ways |= {"digit": lambda: counted_up(path, draw)}
    if twins := [other for other in others if other.parent == path.parent and other != path and other.is_file()]:
        ways["another file"] = lambda: path.write_bytes(draw.choice(twins).read_bytes())
    if path.parts[-2] != "results" and path.suffix in (".safetensors", ".json") and "store" in path.parts:
        ways["folder"] = lambda: (path.unlink(), path.mkdir())
    way = draw.choice(sorted(ways))
    ways[way]()
    return way


def mutate_all(project: Project, seed: int) -> int:
    """Damage every file of the store and of the results; how many they are."""
    draw = random.Random(seed)
    files = [project.path(name) for name in project.sha256("store", "results")]
    for path in files:
        mutate(path, files, draw)
    return len(files)


def repaired(project: Project, target: str) -> None:
    """Call snakemake until it succeeds, which it must within RUNS calls, and without a traceback.

    Each call goes on past a job that has met damage: so there are fewer.
    """
    for _ in range(RUNS):
        run = project.run("snakemake", "-j2", "--keep-going", "--", target, check=False)
        assert "Traceback (most recent call last)" not in run.output, run.output
        if not run.status:
            return
    raise AssertionError(run.output)


def assert_nothing_is_wrong(project: Project, before: dict[str, str]) -> None:
    """Results are byte for byte what they were; what is still damaged in the store is what nobody needed."""
    after = project.sha256("store", "results")
    wrong = {name for name, digest in before.items() if after.get(name) not in (digest, None)}
    verified = project.run("tallmasks", "verify", check=False).output
    assert "Traceback" not in verified
    assert wrong <= {line.split(" ")[0] for line in verified.splitlines()}
    assert not {name for name in wrong if name.startswith("results/")}
    lost = before.keys() - after.keys()
    assert not {name for name in lost if name.startswith("results/")}
