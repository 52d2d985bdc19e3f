"""Run `snakemake --lint` and fail on anything but missing per-rule software environments.

One environment, pinned in requirements.lock, serves every rule, so that one remark is meant to stay.
"""

import json
import subprocess
import sys
from pathlib import Path

MEANT = "Specify a conda environment or container"


def remarks() -> list[str]:
    """What the linter says of the workflow, other than what is meant."""
    snakemake = Path(sys.executable).with_name("snakemake")
    run = subprocess.run([snakemake, "--lint", "json"], capture_output=True, text=True, check=False)
    start = run.stdout.find("{")
    if start < 0:
        return [] if "All lints passed" in run.stdout + run.stderr or not run.returncode else [run.stderr or run.stdout]
    found = json.JSONDecoder().raw_decode(run.stdout[start:])[0]
    places = [("Snakefile", lint) for entry in found.get("snakefiles", []) for lint in entry["lints"]]
    places += [(entry["for"], lint) for entry in found.get("rules", []) for lint in entry["lints"]]
    return [f"{where}: {lint['title']}: {lint['body']}" for where, lint in places if MEANT not in lint["title"]]


if __name__ == "__main__":
    problems = remarks()
    print("\n".join(problems), file=sys.stderr)
    sys.exit(bool(problems))
