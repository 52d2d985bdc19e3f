"""Where Snakemake is called, and what it says before any plugin is asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

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


def leave_out_profiles() -> None:
    """Keep from the screen that profiles/default is in force: it is for every call here, and says nothing to a user."""
    cli = sys.modules.get("snakemake.cli")
    if cli is None or Path.cwd() != PROJECT or os.environ.get("TALLMASKS_VIEW") == "full":
        return

    def without_profile(*words: object, **options: Any) -> None:
        if not str(words[0] if words else "").startswith("Using workflow specific profile"):
            print(*words, **options)

    vars(cli)["print"] = without_profile
