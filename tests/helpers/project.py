"""A small project in a folder of its own, driven with the real snakemake, dvc and git."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from conftest import PARAMS
from processes import default_signals, serve

ROOT = Path(__file__).parents[2]
CODE = (
    "Snakefile", "src", "real_images", "real_texts", "tiny_worlds", "workflow", "models/tiny.safetensors", "profiles",
    "experiments", "dvc.yaml", ".dvcignore", ".dvc/.gitignore", ".gitignore", "Makefile", "pyproject.toml",
    "requirements.lock", "requirements-uv.lock",
)  # fmt: skip
"""What the tests' project has of this one: none of what a user makes with it or sets in it."""
DVC_CONFIG = """[core]
    analytics = false
    remote = trial
[cache]
    type = "reflink,copy"
['remote "trial"']
    url = ../.dvc-remote
"""
METHODS = ["zeroshot", "task_arithmetic", "consensus_task_arithmetic", "fine_tuned", "tall_mask_task_arithmetic"]
TARGETS = re.compile(r"all|figures|sweep|paper|reported|(checkpoints|experiment)_\w+")
"""Rules without work of their own, which only ask for others."""


def small(params: dict[str, Any]) -> None:
    """Turn the project's parameters into those of a chain that is fine-tuned in seconds."""
    params["benchmarks"] = {"two": ["svhn", "mnist"], "three": ["mnist", "svhn", "dtd"]}
    params["methods"] = METHODS
    params["grids"] = {"scaling_coefficient": [0.0, 0.5, 1.0], "mask_lambda": [0.2, 0.4]}
    params["seeds"] = [0, 1]
    params["models"] = {"tiny": quick(params["models"]["tiny"])}


def quick(model: dict[str, Any]) -> dict[str, Any]:
    """The entry of a tiny model, fine-tuned in seconds."""
    model["examples"].update(train=32, validation=24, test=24)
    model["finetuning"].update(iterations=3, batch_size=16, warmup_iterations=1)
    return model


HELD = """
import os, time
from pathlib import Path
from tallmasks.errors import TallmasksError
from tallmasks.methods import Scaled, merge, merged_row

@merge("held")
def held(rows, place, prepared):
    if Path("wait").exists():
        print("begun", os.getpid(), os.getppid(), flush=True)
        time.sleep(600)
    if Path("fail").exists():
        raise TallmasksError("no room; make some")
    return sum(rows)

merged_row("held", order=45, title="Held", paper="none", merge="held", usage=Scaled())
"""
"""A method file whose merge waits, or fails, while the project's folder has a file `wait` or `fail`."""


ORDERS = ["zeroshot_ascending", "name_ascending", "name_wave"]


def of_the_paper(params: dict[str, Any]) -> None:
    """Figure 5 with three tasks and three orders, everything else for three tasks too."""
    params["benchmarks"].pop("two")
    params["methods"] = "paper"
    params["seeds"] = [0]
    params["paper"]["subsets"]["orders"] = ORDERS
    params["models"]["tiny"]["sweeps"] = {"subsets": {"validation": 30, "test": 60}, "thresholds": {"validation": 30}}


@dataclass(frozen=True)
class Run:
    """A command's exit status and output, and the Snakemake jobs in it, by rule."""

    status: int
    output: str

    @property
    def jobs(self) -> Counter[str]:
        rules = re.findall(r"^Finished jobid: \d+ \(Rule: (.+)\)$", self.output, re.M)
        return Counter(rule for rule in rules if not TARGETS.fullmatch(rule))

    @property
    def planned(self) -> Counter[str]:
        """The jobs that a dry run counts."""
        table = self.output.rpartition("Job stats:")[2].partition("total")[0]
        counts = {rule: int(count) for rule, count in re.findall(r"^(\S+) +(\d+)$", table, re.M)}
        return Counter({rule: count for rule, count in counts.items() if not TARGETS.fullmatch(rule)})


@dataclass(frozen=True)
class Project:
    """One working copy."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, *command: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command in its own session, so that all of it can be killed."""
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.surroundings(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=default_signals,
        )

    def run(self, *command: str, fails: bool = False, check: bool = True) -> Run:
        """Run a command to its end; it must succeed, or fail where that is expected, unless nothing is checked."""
        process = self.start(*command)
        try:
            output, _ = process.communicate(timeout=3600)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert not check or (process.returncode != 0) == fails, f"{' '.join(command)}: {process.returncode}\n{output}"
        return Run(process.returncode, output)

    def snakemake(self, *arguments: str, fails: bool = False) -> Run:
        return self.run("snakemake", "-j2", "--", *arguments, fails=fails)

    def dry_run(self, *arguments: str, fails: bool = False) -> Run:
        return self.run("snakemake", "-n", "--", *arguments, fails=fails)

    def dvc(self, *arguments: str, fails: bool = False) -> Run:
        return self.run("dvc", *arguments, fails=fails)

    def up_to_date(self) -> bool:
        """True if DVC sees no change."""
        return json.loads(self.dvc("status", "--json").output) == {}

    def git(self, *arguments: str) -> Run:
        return self.run("git", *arguments)

    def tallmasks(self, *arguments: str, fails: bool = False) -> Run:
        return self.run(sys.executable, "-m", "tallmasks.cli.main", *arguments, fails=fails)

    def surroundings(self) -> dict[str, str]:
        """The tests' own, without what steers the engines from outside, and with the tests' Python first."""
        drop = ("SNAKEMAKE_", "DVC_", "GIT_", "TALLMASKS_", "OMP_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
        identity = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
        environment = {
            **kept,
            **dict.fromkeys(identity, "nobody@example.org"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(self.root / "src"),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "XDG_CONFIG_HOME": str(self.root.parent / "no-config"),  # DVC's, and what git ignores everywhere
            "XDG_CONFIG_DIRS": str(self.root.parent / "no-config"),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(self.root.parent / "dvc-site-cache"),
            "TALLMASKS_WARM": str(warm_python()),
            **self.environment,
        }
        if not environment["TALLMASKS_WARM"]:  # each Snakemake has its own
            del environment["TALLMASKS_WARM"]
        return environment

    def path(self, *parts: str) -> Path:
        return self.root.joinpath(*parts)

    def one(self, pattern: str) -> Path:
        (found,) = self.root.glob(pattern)
        return found

    def sha256(self, *folders: str) -> dict[str, str]:
        """The content of every file under some folders, by path."""
        files = [path for folder in folders for path in self.path(folder).rglob("*") if path.is_file()]
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)
        }

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Edit params.yaml as a user would."""
        _edit(self.path("params.yaml"), edit)

    def benchmark(self, name: str, tasks: Sequence[str]) -> None:
        self.change(lambda params: params["benchmarks"].update({name: list(tasks)}))

    def replace(self, file: str, old: str, new: str) -> None:
        text = self.path(file).read_text()
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        self.path(file).write_text(text.replace(old, new))

    def add_held(self) -> None:
        self.path("src/tallmasks/methods/rows/held.py").write_text(HELD)
        self.change(lambda params: params["methods"].append("held"))

    def raise_version(self, file: str, name: str) -> None:
        """Raise the version of a stage or a view, as whoever changes its step does."""
        path = self.path("src/reproduction/plan", file)
        text, count = re.subn(rf"version=(\d+[^@]*\ndef {name}\()", r"version=9\1", path.read_text())
        assert count == 1, f"{file} declares {name} {count} times"
        path.write_text(text)

    def damage(self, path: Path, content: bytes) -> None:
        """Overwrite a read-only file in place."""
        path.chmod(0o644)
        path.write_bytes(content)

    def copy(self, root: Path) -> Project:
        subprocess.run(["cp", "-a", "--reflink=auto", str(self.root), str(root)], check=True)
        return Project(root, self.environment)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)


@functools.cache
def warm_python() -> Path:
    """The folder of a warm Python that this process owns: all Snakemakes of the tests share one import of torch."""
    folder = Path(tempfile.mkdtemp(prefix="tallmasks-tests-")) / "warm"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    serve(folder)
    return folder


def lay_out(root: Path) -> Project:
    """The project's code with small parameters, as a fresh git repository."""
    for name in CODE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            # with what is compiled, which is known by its sources' times, but not while it is written
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns(".*", "*.pyc.*", "*.tmp.*"))
        else:
            shutil.copy2(ROOT / name, root / name)
    project = Project(root)
    shutil.copy(PARAMS, root / "params.yaml")
    project.change(small)
    (root / ".dvc" / "config").write_text(DVC_CONFIG)
    switched_off = "".join(f"/experiments/{folder.name}/\n" for folder in sorted((root / "experiments").iterdir()))
    (root / ".dvcignore").write_text((root / ".dvcignore").read_text() + switched_off)
    _edit(root / "dvc.yaml", _two_and_three)
    _edit(root / "profiles" / "default" / "config.yaml", lambda profile: profile.pop("logger"))  # which names no jobs
    _edit(root / "profiles" / "slurm" / "config.yaml", lambda profile: profile.update({"default-resources": []}))
    project.git("init", "-q", "-b", "main", "--template=")
    project.commit("start")
    return project


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _two_and_three(declared: dict[str, Any]) -> None:
    """Have DVC show the tests' benchmarks, whatever it showed before."""
    tables = {f"results/tiny/{benchmark}/table.csv": "method" for benchmark in ("two", "three")}
    declared["metrics"] = [table.replace("table.csv", "metrics.json") for table in tables]
    for plot in (plot for named in declared["plots"] for plot in named.values()):
        if any(path.endswith("/table.csv") for path in plot["y"]):
            plot["y"] = tables


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
