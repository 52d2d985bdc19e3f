"""Snakemake's own lint of the workflow: `python workflow/runner/check_rules.py` (a part of `make check`).

It may remark on nothing but missing software environments per rule: one environment, pinned in requirements.lock,
serves them all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MEANT = "Specify a conda environment or container for each rule."


def remarks() -> Iterator[str]:
    """What Snakemake's linter says of the workflow, other than what is meant."""
    snakemake = Path(sys.executable).with_name("snakemake")
    run = subprocess.run([snakemake, "--lint"], capture_output=True, text=True, check=False)
    output = run.stdout + run.stderr
    parts = re.split(r"^Lints for (.+):$", output, flags=re.MULTILINE)
    places = list(zip(parts[1::2], parts[2::2], strict=True))
    if run.returncode and not places:
        yield output  # the workflow cannot even be read
    for place, text in places:
        for remark in re.split(r"^    \* ", text, flags=re.MULTILINE)[1:]:
            if not remark.startswith(MEANT):
                yield f"{place}: {remark.strip()}"


if __name__ == "__main__":
    sys.exit("\n".join(remarks()) or 0)
