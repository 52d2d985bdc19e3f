"""A job of the workflow: the function `run` of a script in this folder, and a file that says what it works on.

    python workflow/scripts/merge.py .tallmasks/jobs/<digest>.json

Snakemake starts it so, and so can you: the log of a job that failed ends with this line.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this copy's, whatever the environment is of

from threadpoolctl import threadpool_limits

import checked_inputs
import gpu
from tallmasks.artifacts.labels import as_metadata, facts_of, write_json
from tallmasks.errors import TallmasksError, user_errors


@dataclass(frozen=True)
class Job:
    """One step's work: the recipe, the input files by role, the output files and the resources it may use."""

    recipe: Mapping[str, Any]
    inputs: Mapping[str, list[Path]]
    outputs: Mapping[str, Path]
    model: str = ""
    """The model that it is for, or the catalogue where it makes examples."""
    threads: int = 1
    imports: Sequence[str] = ()
    """Modules that `warm.py` imports once for all jobs."""
    gpus: int = 0
    jobs_per_gpu: int = 1
    submitted: bool = False
    """Whether a cluster's scheduler started it, and assigned its GPUs."""
    micro_batch_size: int | None = None
    """The largest examples per pass of a fine-tuning."""
    made_from: Mapping[str, list[str]] = field(default_factory=dict)
    """The identities of the input artifacts by role, once they have been checked."""

    @classmethod
    def read(cls, file: str, copies: Sequence[str] = ()) -> Job:
        """The job that a file describes; ``copies``: where Snakemake has its files, if they are kept in a storage."""
        told = json.loads(Path(file).read_text())
        told["inputs"] = {role: [placed(path, copies) for path in paths] for role, paths in told["inputs"].items()}
        return cls(**told | {"outputs": {role: placed(path, copies) for role, path in told["outputs"].items()}})

    @property
    def params(self) -> Mapping[str, Any]:
        return self.recipe["params"]

    @property
    def output(self) -> Path:
        """The one output of a step that has one."""
        (path,) = self.outputs.values()
        return path

    def input(self, role: str) -> Path:
        """The one input in a role that has one."""
        (path,) = self.inputs[role]
        return path

    @property
    def facts(self) -> dict[str, Any]:
        """What an artifact says of its own making."""
        return facts_of(self.recipe, self.made_from, self.threads)

    @property
    def metadata(self) -> dict[str, str]:
        """The same for a safetensors file."""
        return as_metadata(self.facts)

    def write_json(self, value: Mapping[str, Any]) -> None:
        """Write the one output of a step whose artifact is JSON."""
        write_json(self.output, value, self.facts)


def main(run: Callable[[Job], None]) -> None:
    """Run a step on the job that the command line names.  A user's error is one line, not a traceback."""
    script, file, *copies = sys.argv
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    job, start = Job.read(file, copies), time.monotonic()
    use_threads(job.threads)
    try:
        with user_errors(), checked_inputs.damage_put_away():
            gpu.lease(job.gpus, job.submitted, job.jobs_per_gpu)
            made_from = checked_inputs.checked(job.recipe, job.inputs, job.model, job.threads)
            run(replace(job, made_from=made_from))
    except Exception as error:
        print(f"error: {error}", file=sys.stderr) if isinstance(error, TallmasksError) else traceback.print_exc()
        if stat.S_ISREG(os.fstat(1).st_mode):  # in a log
            sys.stdout.flush()
            print(f"This job alone: python {script} {file}", file=sys.stderr)
        sys.exit(1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Snakemake does not see that of a fork
    print(f"done in {time.monotonic() - start:.1f} s, with {memory:.0f} MB of memory", flush=True)


def placed(path: str, copies: Iterable[str]) -> Path:
    """The copy of a file or a folder; its own path where there is none."""
    parts = (f"/{copy}/".partition(f"/{path}/") for copy in copies)
    return next((Path(f"{before}/{path}"[1:]) for before, found, _ in parts if found), Path(path))


def use_threads(threads: int) -> None:
    """Have the libraries that are imported already, and those that will be, use as many threads."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = str(threads)
    numba, torch = sys.modules.get("numba"), sys.modules.get("torch")
    most = numba.config.NUMBA_NUM_THREADS if numba else threads  # once it is imported it takes no larger number
    os.environ["NUMBA_NUM_THREADS"] = str(most)
    if numba:
        numba.set_num_threads(min(threads, most))
    if torch:
        torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")


def say(line: str) -> None:
    """A line of progress into the job's log."""
    print(line, flush=True)
