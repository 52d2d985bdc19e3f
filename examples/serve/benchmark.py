"""Requests a second of the server, beside all models in memory, and beside loading a model at each switch.

    PYTHONPATH=.venv/serve .venv/bin/python examples/serve/benchmark.py [--tasks 8] [--layers 6] [--width 384]

Makes small models, exports every task from their bundle, and starts three servers that differ only in where a task's
weights come from: `bundle` (server.py), `models` (all exported models in memory), `disk` (one model, and the exported
file is loaded at each switch).  Each computes with one thread: three servers with a thread for every core would wait
for each other.  Clients send requests of 16 words for 1, 2, 4, ... tasks; the three servers take turns.  Prints medians
over rounds, and the memory of the process with the model, files in memory included.
"""

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from server import EveryTask, options, serve
from small_models import WORDS, write
from tallmasks.commands.main import main as tallmasks_command

Answer = tuple[int, dict]


class EveryModel(EveryTask):
    """All models in memory."""

    def setup(self, device: str) -> None:
        self.device, self.tokenizer = device, AutoTokenizer.from_pretrained(self.base)
        load, folder = AutoModelForSequenceClassification.from_pretrained, self.base.parents[1] / "exported"
        self.models = {task: load(folder / task).to(device).eval() for task in self.bundle.tasks}
        self.model = self.models[self.bundle.tasks[0]]

    @contextmanager
    def model_of(self, task: str) -> Iterator[torch.nn.Module]:
        yield self.models[task]


class FromDisk(EveryTask):
    """One model, which reads a task's exported file."""

    loaded: str | None = None

    @contextmanager
    def model_of(self, task: str) -> Iterator[torch.nn.Module]:
        if task != self.loaded:
            file = self.base.parents[1] / "exported" / task / "model.safetensors"
            self.model.load_state_dict(load_file(file, device=self.device))
            self.loaded = self.bundle._turns.task = task  # so that grouped() begins with it, as for the bundle
        yield self.model


KINDS = {"bundle": EveryTask, "models": EveryModel, "disk": FromDisk}


@contextmanager
def started(command: list[str], log: Path) -> Iterator[tuple[int, int]]:
    """A server's port and process; it answers when the block begins, and is ended with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as output:
        words, environment = [*command, "--port", str(port)], {**os.environ, "OMP_NUM_THREADS": "1"}
        server = subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        while not _healthy(port):
            if server.poll() is not None:
                raise SystemExit(f"error: the server ended:\n{log.read_text()}")
            time.sleep(0.2)
        yield port, server.pid
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def _healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def ask(port: int, questions: list[dict[str, str]], clients: int) -> list[Answer]:
    """Status and answer for each question; each client sends one at a time."""

    def client(part: list[dict[str, str]]) -> list[Answer]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        answers = []
        for question in part:
            connection.request("POST", "/predict", json.dumps(question), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answers.append((response.status, json.loads(response.read())))
        return answers

    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(client, [questions[number::clients] for number in range(clients)]))
    return [parts[number % clients][number // clients] for number in range(len(questions))]


def questions(tasks: list[str], count: int, seed: int = 0) -> list[dict[str, str]]:
    """Requests for tasks drawn at random, of 16 words each."""
    draw = random.Random(seed)
    texts = (" ".join(f"w{draw.randrange(WORDS)}" for _ in range(16)) for _ in range(count))
    return [{"task": draw.choice(tasks), "text": text} for text in texts]


def export(folder: Path, tasks: list[str]) -> None:
    """Every task's model of FOLDER/bundle, in FOLDER/exported."""
    (folder / "exported").mkdir()
    for task in tasks:
        output = str(folder / "exported" / task)
        if status := tallmasks_command(["export", str(folder / "bundle"), "--task", task, "-o", output]):
            raise SystemExit(status)


def memory(server: int) -> float:
    """GB of the largest process that a server started, files in memory included."""
    sizes = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) == server:
                sizes.append(next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmRSS" in line))
        except (OSError, StopIteration):  # it has ended
            continue
    return max(sizes) * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("tasks", 8),
        ("layers", 6),
        ("width", 384),
        ("clients", 16),
        ("requests", 64),
        ("rounds", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    tasks = [f"task{number}" for number in range(arguments.tasks)]
    mixes = [count for count in (1, 2, 4, 8, 16, 32) if count <= len(tasks)]
    rates: dict[tuple[str, int], list[float]] = {(kind, count): [] for kind in KINDS for count in mixes}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write(folder, len(tasks), arguments.layers, arguments.width)
        export(folder, tasks)
        command = [sys.executable, __file__, "--kind"]
        servers = {
            kind: stack.enter_context(started([*command, kind, str(folder / "bundle")], folder / f"{kind}.log"))
            for kind in KINDS
        }
        for number in range(arguments.rounds + 1):  # the first is not counted
            print(f"round {number} of {arguments.rounds}", file=sys.stderr)
            for count in mixes:
                for kind, (port, _) in servers.items():
                    sent = questions(tasks[:count], arguments.requests, number)
                    start = time.perf_counter()
                    answers = ask(port, sent, arguments.clients)
                    rates[kind, count].append(len(answers) / (time.perf_counter() - start))
        sizes = {kind: memory(server) for kind, (_, server) in servers.items()}
        size = (folder / "base/model.safetensors").stat().st_size / 1e6
    facts = f"{arguments.clients} clients, {os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}"
    print(f"\n{len(tasks)} models of {size:.0f} MB, {facts}\n")
    print(f"| tasks mixed | {' | '.join(f'{kind}, requests/s' for kind in KINDS)} |")
    print(f"|---:|{'---:|' * len(KINDS)}")
    for count in mixes:
        medians = (f"{statistics.median(rates[kind, count][1:]):.1f}" for kind in KINDS)
        print(f"| {count} | {' | '.join(medians)} |")
    print(f"| memory, GB | {' | '.join(f'{sizes[kind]:.2f}' for kind in KINDS)} |")


if __name__ == "__main__":
    if "--kind" in sys.argv:
        parser = options()
        parser.add_argument("--kind", choices=KINDS)
        arguments = parser.parse_args()
        serve(arguments, KINDS[arguments.kind])
    else:
        main()
