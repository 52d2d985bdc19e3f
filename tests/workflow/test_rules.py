"""Rules say nothing of their own: what a stage reads and runs is in its declaration."""

import subprocess
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "workflow" / "runner"))
import check_rules

MERGE = (ROOT / "workflow" / "rules" / "merge.smk").read_text()


def test_the_rules_have_their_form() -> None:
    """Artifacts would be made from other inputs, or by another command, under the names of the old ones."""
    command = [sys.executable, "workflow/runner/check_rules.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_shell_line_is_found() -> None:
    """A command that a rule adds of its own would be no part of what the stage's number stands for."""
    problems, made = check_rules.out_of_form(MERGE.replace("{params.command}", "nice {params.command}"), "merge.smk")
    assert made == ["multi_task_vector"]
    assert len(problems) == 1 and problems[0].startswith("merge.smk: rule merge: expected the shell line")


def test_another_stages_inputs_are_found() -> None:
    """A rule would hand its job the files of another stage."""
    text = MERGE.replace('inputs("multi_task_vector")', 'inputs("mask_bundle")')
    problems, _ = check_rules.out_of_form(text, "merge.smk")
    assert problems == ["merge.smk: rule merge: expected one stage throughout, found mask_bundle and multi_task_vector"]
