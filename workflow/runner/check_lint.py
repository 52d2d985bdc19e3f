"""Run `snakemake --lint` and fail on anything but missing per-rule software environments.

One environment, pinned in requirements.lock, serves every rule, so that one remark is meant to stay.
"""

import re
import subprocess
import sys
from pathlib import Path

MEANT = "Specify a conda environment or container for each rule."


def remarks() -> list[str]:
    """What the linter says of the workflow, other than what is meant."""
    snakemake = Path(sys.executable).with_name("snakemake")
    run = subprocess.run([snakemake, "--lint"], capture_output=True, text=True, check=False)
    said = run.stdout + run.stderr
    found = re.split(r"^Lints for (.+):$", said, flags=re.MULTILINE)
    places = list(zip(found[1::2], found[2::2], strict=True))
    if run.returncode and not places:
        return [said]  # the workflow cannot even be read
    return [
        f"{place}: {remark.strip()}"
        for place, remarks in places
        for remark in re.split(r"^    \* ", remarks, flags=re.MULTILINE)[1:]
        if not remark.startswith(MEANT)
    ]


if __name__ == "__main__":
    problems = remarks()
    print("\n".join(problems), file=sys.stderr)
    sys.exit(bool(problems))
