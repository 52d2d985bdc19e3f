"""Hold every stage's version to the code that the stage runs.

A changed parameter gives an artifact another name by itself; changed code does not: the number in the stage's
declaration does (`version=` in src/tallmasks/plan/chain.py and views.py).  workflow/stage_code.json records the numbers
and the code that they stand for, definition by definition, comments and docstrings left out.

    python workflow/runner/stage_code.py                  say whose code changed since, and fail if its number did not
    python workflow/runner/stage_code.py --record         accept the code of stages whose number was raised
    python workflow/runner/stage_code.py --record --same  accept changes that leave every byte of the output the same

What a stage runs is found by following names from its script through the scripts and the package; what a module does
when it is imported counts too, and so do the data files beside it, the bridge's functions that hand a job its inputs,
and the pinned versions of the libraries that decide bits.  Rules say nothing of their own (check_rules.py).  What is
new, a stage, a figure, a function that they use, needs no other number: it is to be recorded, so that its next change
is seen.  The files of methods and merges are left out: the recipes of what is made with one hold the digest of its
file, and of those of `tallmasks.methods.rows.parts` that it imports.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from site import getsitepackages

import own_code

ROOT = Path(__file__).parents[2]


def hidden() -> Iterator[str]:
    """What is imported under a name that stands for something else too."""
    folders = (ROOT / "src", ROOT / "workflow" / "scripts", ROOT / "workflow" / "runner")
    own = [path for folder in folders for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()]
    for path in own:
        installed = PathFinder.find_spec(path.stem, getsitepackages())
        if path.stem in sys.stdlib_module_names or (installed and installed.origin and path.stem != "tallmasks"):
            yield f"{path.relative_to(ROOT)} hides the library {path.stem}; give it another name"
    for path in sorted(file for folder in folders for file in folder.rglob("*.py")):
        if path.with_suffix("").is_dir():
            yield f"{path.relative_to(ROOT)} is hidden by the folder of its name; remove one of them"


def main() -> int:
    """The exit status: 1 where a stage's number does not stand for its code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--same", action="store_true")
    arguments = parser.parse_args()
    own_code.check()
    if problems := list(hidden()):  # before anything is imported under such a name
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    from stage_digests import RECORD, changes
    from tallmasks.plan.recipes import versions

    recorded, numbers = json.loads(RECORD.read_text())["versions"] if RECORD.exists() else {}, versions()
    changed, unrecorded, now = changes()
    problems = [
        f"stage {stage}: {', '.join(names)} changed; raise its number where it is declared, in src/tallmasks/plan/"
        for stage, names in changed.items()
        if names and recorded.get(stage) == numbers[stage] and not arguments.same
    ]
    if not problems and arguments.record:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
    elif not problems and changed:
        problems.append(f"stage {', '.join(changed)}: another number than the one recorded")
    if unrecorded and not arguments.record:
        problems.append(f"not recorded, so that nobody would see a change of it: {', '.join(unrecorded)}")
    if problems:
        advice = "python workflow/runner/stage_code.py --record (with --same where every output byte stays the same)"
        print(*problems, f"then accept it: {advice}", sep="\n", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
