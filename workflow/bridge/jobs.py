"""A job as it is told to the runner: shell words that name a file with its recipe, inputs and outputs."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bridge.run import Run
from tallmasks.plan.node import Node
from tallmasks.store.atomic_files import atomic_write_text
from tallmasks.store.folders import SCRATCH

SCRIPTS, RUNNER = Path("workflow/scripts"), Path("workflow/runner")
LATER = ("pandas", "matplotlib.pyplot", "scipy.stats", "scipy.cluster.hierarchy")
"""What tables and figures need, and the warm Python imports when it has nothing else to do."""
ARRAYS = ("numpy", "numba", "safetensors")
"""What every step on arrays needs."""


class Jobs:
    """How the jobs of one run are started."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._imports: dict[str, None] = {}
        self._warm: subprocess.Popen[bytes] | None = None

    def will_import(self, modules: Iterable[str]) -> None:
        """Take notice of what the networks of this run's jobs need, before the first of them is started."""
        self._imports |= dict.fromkeys(modules)

    def words(
        self,
        script: str,
        recipe: Mapping[str, Any],
        inputs: Mapping[str, Iterable[Path | str]],
        outputs: Mapping[str, Path | str],
        threads: int,
        model: str = "",
        gpus: int = 0,
        warm: bool = False,
        micro_batch_size: int | None = None,
    ) -> str:
        """The shell words that run `script` on a recipe.

        `warm` says that the job is worth starting the warm Python for; others use it where it runs.
        """
        told: dict[str, Any] = {
            "recipe": recipe,
            "inputs": {role: [str(path) for path in paths] for role, paths in inputs.items()},
            "outputs": {role: str(path) for role, path in outputs.items()},
            "model": model,
            "threads": threads,
            "gpus": gpus,
        }
        if gpus and self._run.submitted:
            told["submitted"] = True
        if micro_batch_size:
            told["micro_batch_size"] = micro_batch_size
        if warm:
            self._warm_up()
        text = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
        words = [sys.executable, str(RUNNER / "job.py"), str(SCRIPTS / f"{script}.py"), str(self._file_of(text))]
        return f"exec {shlex.join(words)}"  # so that the job is a child of Snakemake itself, with which it dies

    def _file_of(self, text: str) -> Path:
        """A file with the description of a job, named after it; a dry run writes none."""
        path = SCRATCH / "jobs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if (self._run.writing or self._run.submitted) and not path.exists():
            atomic_write_text(path, text, read_only=False)
        return path

    def _warm_up(self) -> None:
        """Start the warm Python, once, where this process runs jobs itself: it is theirs, and dies with this process.

        Here, in the main thread and before the first job that is worth it: the kernel takes the end of the thread that
        starts it for the end of its owner.
        """
        if self._warm or not self._run.runs_jobs:
            return
        if os.environ.get("TALLMASKS_WARM", "1") == "1" and threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-P", str(RUNNER / "warm.py"), str(SCRATCH / "warm"), str(os.getpid())]
            command += [" ".join(dict.fromkeys([*self._imports, *ARRAYS])), " ".join(LATER)]
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
            self._warm = subprocess.Popen(command, **pipes, start_new_session=True)  # Ctrl-C is for Snakemake
            assert self._warm.stdout
            with self._warm.stdout as output:
                output.readline()  # it can be connected to, or has ended


def files_of(node: Node) -> dict[str, list[Path]]:
    """A node's input files by role: artifacts of the store and source files."""
    return {role: [Path(needed.path) for needed in nodes] for role, nodes in node.inputs.items()} | {
        role: [path] for role, path in node.sources.items()
    }
