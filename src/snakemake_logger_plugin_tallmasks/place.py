"""Where Snakemake is called."""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")


def elsewhere() -> str:
    """A hint for whoever calls `snakemake` in a folder below the project's; else nothing."""
    if Path(sys.argv[0]).name != "snakemake" or any(word in sys.argv for word in ("-s", "--snakefile")):
        return ""
    here = Path.cwd()
    if PROJECT not in here.parents or any(Path(name).exists() for name in SNAKEFILES):
        return ""
    return f"This is a folder within the project; snakemake is called in the project's own: cd {PROJECT}"
