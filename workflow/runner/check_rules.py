"""Hold the workflow's rules to their form: `python workflow/runner/check_rules.py` (a part of `make check`).

What a stage reads and runs is declared in src/tallmasks/plan/, and a rule asks the bridge for it by the stage's name.
So every rule names one stage throughout, has the one shell line, and no stage is without its rule.  Beside that
`snakemake --lint` may remark on nothing but missing software environments per rule: one environment, pinned in
requirements.lock, serves them all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import own_code

RULES = Path(__file__).parents[1] / "rules"
RULE = re.compile(r"^( *)(?:rule|checkpoint)(?: (\w+))?:\n((?:(?:\1 .*)?\n)*)", re.M)
SHELL = re.compile(r"^ +shell:\n\s+(.*)\n", re.M)
STAGE = re.compile(r'BRIDGE\.(?:store|views)\.(?!resource\("arrays")\w+\("(\w+)"')
DRAWN = {"figures": "figure", "tables": "paper_table"}
ONE_SHELL_LINE = '"{params.command} > {log} 2>&1"'
OTHERS = {
    "finetune": '"{params.command} > {log.log} 2>&1"',  # writes its losses beside
    "pretrain_tiny": '"{params.command} 2>&1 | tee {log}"',  # is asked for by name, and watched
    "pretrain_tiny_t5": '"{params.command} 2>&1 | tee {log}"',
}
MEANT = "Specify a conda environment or container for each rule."


def out_of_form(text: str, file: str) -> tuple[list[str], list[str]]:
    """What is wrong with the rules of a file, and the stages that they make."""
    problems, made = [], []
    for _, name, body in RULE.findall(text + "\n"):
        where = f"{file}: rule {name or 'without a name'}"
        shell = SHELL.findall(body)
        if shell and shell != [OTHERS.get(name, ONE_SHELL_LINE)]:
            problems.append(
                f"{where}: expected the shell line {OTHERS.get(name, ONE_SHELL_LINE)}, found {' '.join(shell)}"
            )
        stages = sorted(
            {*STAGE.findall(body), *(DRAWN[kind] for kind in re.findall(r"BRIDGE\.(\w+)\.command\(_", body))}
        )
        if len(stages) > 1:
            problems.append(f"{where}: expected one stage throughout, found {' and '.join(stages)}")
        made += stages if "BRIDGE" in body and shell else []
    return problems, made


def remarks() -> Iterator[str]:
    """What Snakemake's linter says of the workflow, other than what is meant."""
    snakemake = Path(sys.executable).with_name("snakemake")
    run = subprocess.run([snakemake, "--lint"], capture_output=True, text=True, check=False)
    said = run.stdout + run.stderr
    found = re.split(r"^Lints for (.+):$", said, flags=re.MULTILINE)
    places = list(zip(found[1::2], found[2::2], strict=True))
    if run.returncode and not places:
        yield said  # the workflow cannot even be read
    for place, remarks in places:
        for remark in re.split(r"^    \* ", remarks, flags=re.MULTILINE)[1:]:
            if not remark.startswith(MEANT):
                yield f"{place}: {remark.strip()}"


def main() -> int:
    own_code.check()
    from tallmasks.plan.node import STAGES
    from tallmasks.plan.views import DRAWINGS, VIEWS

    problems: list[str] = []
    made: list[str] = []
    for file in sorted(RULES.glob("*.smk")):
        wrong, stages = out_of_form(file.read_text(), file.name)
        problems += wrong
        made += stages
    for stage in {*STAGES, *VIEWS, *DRAWINGS, *made}:
        if made.count(stage) != 1:
            problems.append(f"expected one rule that makes {stage}, found {made.count(stage)}")
    problems += remarks()
    print(*problems, sep="\n", end="\n" * bool(problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
