"""Merging and compressing checkpoints on disk: time, processor time and memory, beside mergekit.

    python benchmarks/streaming.py [--scale 1] [--peer .venv/mergekit] [--out results/benchmarks]

Writes streaming.csv into the folder, and the machine into streaming.machine.txt.  For each model
(benchmarks/noise_checkpoints.py) a base and fine-tuned models of true shapes are written, measured, and removed.  Every
measurement is a process of its own, on files that were read just before; of several runs the least time counts.  What
disk and memory have no room for is made with fewer layers, and said.

    wall_s, cpu_s            the process's and its children's, start-up included; cpu is user and system
    anon_mib                 the largest RssAnon that was seen, every 20 ms: pages of mapped files are not in it
    read_gb, written_gb      bytes of the files that were given, each once, and of those that were there afterwards
    ns_per_parameter_task    cpu_s by parameter and task
    wall_ns                  wall_s by parameter and task
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path

import yaml
from measured import Cost, Failed, best, cost_of
from noise_checkpoints import MODELS, Model, blocks, write_checkpoints

COMMANDS = {
    "merge task_arithmetic": ("merge", "--method", "task_arithmetic"),
    "merge ties": ("merge", "--method", "ties"),
    "merge consensus_ties": ("merge", "--method", "consensus_ties"),
    "compress ties": ("compress", "--method", "ties"),
    "compress": ("compress",),
}
PEER = {
    "mergekit task_arithmetic": {"merge_method": "task_arithmetic"},
    "mergekit ties": {"merge_method": "ties"},
}
PEER_MAIN = "from mergekit.scripts.merge_raw_pytorch import main; main()"
READ = """
import sys
buffer = bytearray(1 << 20)
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
"""
TALLMASKS = (sys.executable, "-m", "tallmasks.cli.main")


@dataclass(frozen=True)
class Row:
    """A line of the table; see the module."""

    shape: str
    parameters: int
    tasks: int
    what: str
    wall_s: float
    cpu_s: float
    anon_mib: float
    read_gb: float
    written_gb: float
    ns_per_parameter_task: float
    wall_ns: float


@dataclass(frozen=True)
class Files:
    """The checkpoints of one model and where results go."""

    shape: str
    parameters: int
    dtype: str
    base: Path
    tasks: dict[str, Path]
    repeats: int

    @property
    def paths(self) -> list[Path]:
        return [self.base, *self.tasks.values()]

    def row(self, what: str, cost: Cost, read: Sequence[Path], written: int) -> Row:
        """A line on files."""
        values = self.parameters * (1 if what == "export" else len(self.tasks))
        return Row(
            self.shape, self.parameters, len(self.tasks), what, round(cost.wall_s, 3), round(cost.cpu_s, 3),
            round(cost.anon_mib, 1), round(sum(map(bytes_of, read)) / 1e9, 6), round(written / 1e9, 6),
            round(cost.cpu_s / values * 1e9, 3), round(cost.wall_s / values * 1e9, 3),
        )  # fmt: skip

    def measured(self, what: str, command: Sequence[str | Path], environment: dict[str, str]) -> Row:
        """A command that writes to `out`, several times; what it has written is removed but for a bundle."""
        out = self.base.with_name("out.safetensors" if command[3:4] == ("merge",) else "out")
        costs, written = [], 0
        for _ in range(self.repeats):
            remove(out)
            costs.append(cost_of([out if word == "OUT" else word for word in command], environment))
            written = bytes_of(out)
        remove(out)
        return self.row(what, best(costs), self.paths, written)

    @property
    def given(self) -> list[str]:
        """The words by which our commands are told of the files."""
        return [
            "--base",
            str(self.base),
            *(w for task in self.tasks.items() for w in ("--task", "=".join(map(str, task)))),
        ]


def bytes_of(path: Path) -> int:
    """Of a file, or of all in a folder."""
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def remove(path: Path) -> None:
    """A file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


# -- what is measured -----------------------------------------------------------------------------------------


def on_files(files: Files, commands: Sequence[str], peer: Path | None) -> Iterator[Row]:
    """Our commands, and the peer's if there is one, on one model's files."""
    for _ in range(2):  # the first brings them into the page cache
        read = cost_of([sys.executable, "-c", READ, *files.paths])
    yield files.row("read the files once", read, files.paths, 0)
    yield start_up(files, "start-up", ours)
    for what in commands:
        yield files.measured(what, *ours(files, what))
    yield exported(files)
    if peer is not None:
        yield start_up(files, "mergekit start-up", lambda tiny, what: theirs(tiny, "mergekit ties", peer))
        for what in PEER:
            yield files.measured(what, *theirs(files, what, peer))


def ours(files: Files, what: str) -> tuple[Sequence[str | Path], dict[str, str]]:
    """One of our commands, and its environment."""
    return (*TALLMASKS, *COMMANDS.get(what, COMMANDS["merge ties"]), *files.given, "-o", "OUT"), {}


def theirs(files: Files, what: str, peer: Path) -> tuple[Sequence[str | Path], dict[str, str]]:
    """One of mergekit's on the same files, and its environment."""
    config = files.base.with_name("mergekit.yaml")
    config.write_text(yaml.safe_dump(peer_config(files, PEER[what])))
    return (sys.executable, "-c", PEER_MAIN, config, "OUT"), {"PYTHONPATH": str(peer), "HF_HUB_OFFLINE": "1"}


def start_up(files: Files, what: str, command: Callable[[Files, str], tuple]) -> Row:
    """What a command takes before it reads anything worth the name: a merge of models of a few values."""
    with tempfile.TemporaryDirectory(dir=files.base.parent) as place:
        base, paths = write_checkpoints(Path(place), blocks(1000), "F32", 2, "")
        tiny = Files(files.shape, files.parameters, "F32", base, paths, files.repeats)
        tiny.measured(what, *command(tiny, what))  # which leaves Python's bytecode and the compiled loops behind
        row = tiny.measured(what, *command(tiny, what))
    cpu, wall = (round(s / files.parameters / len(files.tasks) * 1e9, 3) for s in (row.cpu_s, row.wall_s))
    return replace(row, tasks=len(files.tasks), ns_per_parameter_task=cpu, wall_ns=wall)


def exported(files: Files) -> Row:
    """One task's model out of a bundle of the default method."""
    bundle, out = files.base.with_name("bundle"), files.base.with_name("task.safetensors")
    cost_of([*TALLMASKS, "compress", *files.given, "-o", bundle])
    costs, written = [], 0
    for _ in range(files.repeats):
        remove(out)
        costs.append(cost_of([*TALLMASKS, "export", bundle, "--task", "task0", "-o", out]))
        written = bytes_of(out)
    row = files.row("export", best(costs), [files.base, *(bundle / "updates").glob("task0*")], written)
    remove(bundle)
    remove(out)
    return row


def peer_config(files: Files, settings: dict[str, str]) -> dict:
    """What mergekit-pytorch is told: the same merge, with our defaults, in float32 as ours computes."""
    each: dict[str, float] = {"weight": 1.0} | ({"density": 0.2} if settings["merge_method"] == "ties" else {})
    return {
        **settings,
        "models": [{"model": str(path), "parameters": each} for path in files.tasks.values()],
        "base_model": str(files.base),
        "parameters": {"normalize": settings["merge_method"] == "ties"},
        "dtype": "float32",
        "out_dtype": "float32" if files.dtype == "F32" else "bfloat16",
    }


# -- a run ----------------------------------------------------------------------------------------------------


def room(arguments: argparse.Namespace) -> int:
    """Bytes for checkpoints: no more than asked for, than the disk has, or than the page cache can hold."""
    free = shutil.disk_usage(arguments.place).free
    if arguments.cold:
        return int(min(arguments.room, 0.95 * free))
    available = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10
    return int(min(arguments.room, 0.8 * free, 0.7 * available))


def needed(parameters: int, width: int, tasks: int) -> float:
    """Bytes of a base, its fine-tuned models, the largest bundle of them and one model out of it."""
    return parameters * (width * (tasks + 2) + 3 * tasks / 8)


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[Model, int, int, bool]]:
    """What is measured: model, tasks, the layers that are wanted, and whether the peer is measured too."""
    named = {model.name: model for model in MODELS}
    every = [f"{model.name}:{tasks}" for model in MODELS for tasks in model.tasks]
    for key in every if arguments.only is None else arguments.only:
        name, tasks, *layers = key.split(":")
        wanted = int(layers[0]) if layers else max(1, round(named[name].layers * arguments.scale))
        yield named[name], int(tasks), wanted, not arguments.peer_on or key in arguments.peer_on


def layers_of(model: Model, tasks: int, wanted: int, bytes_free: int) -> int:
    """As many as are wanted and the room allows, 1 at least."""
    width = 4 if model.dtype == "F32" else 2
    while wanted > 1 and needed(model.parameters(wanted), width, tasks) > bytes_free:
        wanted -= 1
    return wanted


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """All that is measured, one after the other."""
    peer = arguments.peer.resolve() if arguments.peer else None
    for model, tasks, wanted, with_peer in chosen(arguments):
        layers = layers_of(model, tasks, wanted, room(arguments))
        if layers < model.layers:
            why = "the disk or the page cache has no room for more" if layers < wanted else "as was asked for"
            say(f"{model.title}, {tasks} tasks: {layers} of {model.layers} layers, {why}")
        with tempfile.TemporaryDirectory(dir=arguments.place) as folder:
            shape = model.name if layers == model.layers else f"{model.name} ({layers} of {model.layers} layers)"
            found = write_checkpoints(Path(folder), model.shapes(layers), model.dtype, tasks, model.embedding)
            files = Files(shape, model.parameters(layers), model.dtype, *found, arguments.repeats)
            yield from on_files(files, arguments.commands, peer if with_peer else None)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine(peer: Path | None) -> str:
    """What the times depend on, without the machine's name."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "torch", "safetensors"))
    beside = (
        ", ".join(sorted(path.name.removesuffix(".dist-info") for path in peer.glob("mergekit-*.dist-info")))
        if peer
        else ""
    )
    load = os.getloadavg()[1]
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}\n"
        f"Python {platform.python_version()}, {libraries}{', ' + beside if beside else ''}\n"
        f"{load:.1f} processes wanted to run, on average over five minutes, when it began\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="a factor on layers")
    parser.add_argument("--peer", type=Path, help="the folder that mergekit is installed in; else it is left out")
    parser.add_argument("--peer-on", nargs="*", help="for which of them the peer is measured too; all")
    parser.add_argument("--only", nargs="*", help="models, tasks and perhaps layers, as vit_b32:8:2; else all")
    parser.add_argument(
        "--commands", nargs="+", choices=COMMANDS, default=tuple(COMMANDS), metavar="COMMAND", help="all"
    )
    parser.add_argument("--room", type=float, default=20e9, help="bytes of files at a time, at most")
    parser.add_argument(
        "--cold", action="store_true", help="also what the page cache cannot hold: the disk is measured"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()), help="where the files are made")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.place.mkdir(parents=True, exist_ok=True)
    # as for whoever calls a command twice: where bytecode is not kept, start-up is mostly compiling of sources
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    (arguments.out / "streaming.machine.txt").write_text(machine(arguments.peer))
    with (arguments.out / "streaming.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([column.name for column in fields(Row)])
        try:
            for row in rows(arguments):
                table.writerow(astuple(row))
                file.flush()
                say(
                    f"{row.shape:24} {row.tasks:3} {row.what:36} {row.wall_s:9.2f} s {row.wall_ns:9.2f} ns,"
                    f" of processor {row.ns_per_parameter_task:.2f} ns"
                )
        except Failed as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
