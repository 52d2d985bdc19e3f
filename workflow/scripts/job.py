"""Runs the scripts in this folder: each has a function `run`, which gets a `Job` read from a JSON file.

    python workflow/scripts/merge.py .tallmasks/jobs/<digest>.json

The log of a failed job ends with this command.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this project's package

from threadpoolctl import threadpool_limits

import checked_inputs
import gpu
from reproduction.artifacts.labels import as_metadata, write_json
from tallmasks.errors import TallmasksError, user_errors


@dataclass(frozen=True)
class Job:
    """One step: its recipe, input and output files by role, and resources."""

    recipe: Mapping[str, Any]
    inputs: Mapping[str, list[Path]]
    outputs: Mapping[str, Path]
    model: str = ""
    """The model, or for examples the catalogue."""
    threads: int = 1
    imports: Sequence[str] = ()
    """Modules that `warm.py` imports before it forks."""
    gpus: int = 0
    jobs_per_gpu: int = 1
    submitted: bool = False
    """True if a cluster's scheduler assigned the GPUs."""
    micro_batch_size: int | None = None
    """The most examples per pass in fine-tuning."""

    @classmethod
    def read(cls, file: str, copies: Sequence[str] = ()) -> Job:
        """Read a job file.  ``copies``: Snakemake's paths of the job's files, which differ in remote storage."""
        fields = json.loads(Path(file).read_text())
        fields["inputs"] = {
            role: [local_path(path, copies) for path in paths] for role, paths in fields["inputs"].items()
        }
        fields["outputs"] = {role: local_path(path, copies) for role, path in fields["outputs"].items()}
        return cls(**fields)

    @property
    def params(self) -> Mapping[str, Any]:
        return self.recipe["params"]

    @property
    def output(self) -> Path:
        """The output of a step with exactly one."""
        (path,) = self.outputs.values()
        return path

    def input(self, role: str) -> Path:
        """The input of a role with exactly one."""
        (path,) = self.inputs[role]
        return path

    def by_task(self, role: str) -> dict[str, Path]:
        """The inputs of a role with one file per task."""
        return dict(zip(self.params["tasks"], self.inputs[role], strict=True))

    @property
    def folder(self) -> Path:
        return self.outputs["provenance"].parent

    @property
    def metadata(self) -> dict[str, str]:
        return as_metadata(self.recipe)

    def write_json(self, value: Mapping[str, Any]) -> None:
        write_json(self.output, value, self.recipe)


def main(run: Callable[[Job], None]) -> Callable[[Job], None]:
    """Decorator of a script's last function: run it on the job of the command line, unless the script is imported.

    A user's error is printed as one line.
    """
    if run.__module__ != "__main__":
        return run
    script, file, *copies = sys.argv
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    start = time.monotonic()
    try:
        with user_errors(), checked_inputs.damage_put_away():
            job = Job.read(file, copies)
            use_threads(job.threads)
            gpu.lease(job.gpus, job.submitted, job.jobs_per_gpu)
            checked_inputs.check_all(job.recipe, job.inputs, job.model, job.threads)
            run(job)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Snakemake cannot measure a fork
            print(f"done in {time.monotonic() - start:.1f} s, with {memory:.0f} MB of memory", flush=True)
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        print(f"error: {error}", file=sys.stderr) if isinstance(error, TallmasksError) else traceback.print_exc()
        if stat.S_ISREG(os.fstat(1).st_mode):  # a log file
            sys.stdout.flush()
            print(f"This job alone: python {script} {file}", file=sys.stderr)
        sys.exit(1)
    return run


def local_path(path: str, copies: Iterable[str]) -> Path:
    """The copy of a file or folder; the path itself if there is none."""
    parts = (f"/{copy}/".partition(f"/{path}/") for copy in copies)
    return next((Path(f"{before}/{path}"[1:]) for before, separator, _ in parts if separator), Path(path))


def use_threads(threads: int) -> None:
    """Set the number of threads of all numerical libraries, imported or not."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = str(threads)
    numba, torch = sys.modules.get("numba"), sys.modules.get("torch")
    most = numba.config.NUMBA_NUM_THREADS if numba else threads  # cannot grow after the import
    os.environ["NUMBA_NUM_THREADS"] = str(most)
    if numba:
        numba.set_num_threads(min(threads, most))
    if torch:
        torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")


def say(line: str) -> None:
    print(line, flush=True)
