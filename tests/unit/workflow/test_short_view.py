"""The short view of a run: what a user reads of Snakemake's records."""

import io
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from conftest import ROOT
from snakemake_logger_plugin_tallmasks import LogHandler, place
from snakemake_logger_plugin_tallmasks.errors import in_short
from snakemake_logger_plugin_tallmasks.progress import Progress, lasting
from snakemake_logger_plugin_tallmasks.screen import Screen


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def job(number: int, rule: str, model: str = "tiny", outputs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Snakemake's record of a job that starts."""
    title = f"Do {rule} {number}"
    return {
        "jobid": number,
        "rule_name": rule,
        "rule_msg": title,
        "wildcards": {"model": model, "name": f"cars-s{number}-0123456789ab"},
        "output": list(outputs),
        "log": [f"{number}.log"],
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".tallmasks").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TALLMASKS_VIEW", raising=False)
    monkeypatch.setattr(sys, "argv", ["snakemake", "results/tiny/two/table.csv"])
    return tmp_path


@pytest.fixture
def said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Hands records to the view, ends the run, and gives what the view wrote into a pipe."""

    def run(*records: tuple[int, str | None, dict[str, Any]], **settings: Any) -> str:
        stream = io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            none = dict.fromkeys(["verbose", "printshellcmds", "debug_dag", "nocolor", "show_failed_logs"], False)
            common: Any = SimpleNamespace(**(none | {"quiet": None, "dryrun": False, "stdout": False} | settings))
            handler = LogHandler(common, None)
            for level, message, extra in records:
                record = logging.LogRecord("snakemake", level, "", 0, message, None, None)
                record.__dict__.update(extra)
                handler.handle(record)
            handler.close()
            handler.close()  # as at the end of the process once more
        return stream.getvalue()

    return run


STARTED = (logging.INFO, "Workflow has started!", {"event": LogEvent.WORKFLOW_STARTED})


def counted(**stats: int) -> tuple[int, str, dict[str, Any]]:
    return logging.INFO, "Job stats: ...", {"event": LogEvent.RUN_INFO, "stats": stats | {"total": sum(stats.values())}}


def starts(number: int, rule: str, **others: Any) -> tuple[int, str, dict[str, Any]]:
    return logging.INFO, "", {"event": LogEvent.JOB_INFO, **job(number, rule, **others)}


def ends(number: int) -> tuple[int, str, dict[str, Any]]:
    return logging.INFO, "", {"event": LogEvent.JOB_FINISHED, "job_id": number}


def fails(number: int, rule: str, *logs: Path) -> list[tuple[int, str, dict[str, Any]]]:
    """What Snakemake says of a job that failed."""
    command = "exec python workflow/runner/job.py '{" + 3000 * '"recipe"' + "}'"
    log = [str(path) for path in logs]
    told = {"jobid": number, "rule_name": rule, "log": log, "shellcmd": command, "indent": False}
    raised = (
        f"RuleException:\nCalledProcessError in file ..., line 5:\nCommand '{command}' returned non-zero exit status 1."
    )
    return [
        (logging.ERROR, raised, {"event": LogEvent.ERROR, "exception": "RuleException"}),
        (logging.ERROR, f"Error in rule {rule}", {"event": LogEvent.JOB_ERROR, **told}),
    ]


FAILED = (
    (logging.ERROR, "Exiting because a job execution failed. Look above for error messages", {}),
    (
        logging.ERROR,
        "WorkflowError:\nAt least one job did not complete successfully.",
        {"event": LogEvent.ERROR, "exception": "WorkflowError"},
    ),
)


def write_log(folder: Path, name: str, *lines: str) -> Path:
    path = folder / f"{name}.log"
    path.write_text("\n".join(["$ python workflow/runner/job.py x.py '{\"recipe\": 1}'", *lines]) + "\n")
    return path


def test_how_far_it_is_is_said_and_the_table_comes_last(folder: Path, said: Callable[..., str]) -> None:
    """A user would read hundreds of lines, none of which says where the result is."""
    results = folder / "results/tiny/two"
    results.mkdir(parents=True)
    (results / "table.csv").write_text("method\n")
    page = (
        "# tiny on two\n\n| Merging | Acc. |\n|---|---:|\n| TIES | **73.4** |\n| Zeroshot | 5.1 |\n\nTest accuracy.\n"
    )
    (results / "table.md").write_text(page)
    lines = said(
        STARTED,
        counted(finetune=2, results=1),
        *[starts(number, "finetune") for number in (1, 2)],
        ends(1),
        ends(2),
        starts(3, "results", outputs=("results/tiny/two/table.csv",)),
        ends(3),
    ).splitlines()
    assert lines[0] == "3 jobs: 2 finetune, 1 results"
    assert any(line.startswith("2 of 3 jobs done: finetune 2 of 2") for line in lines)
    assert any(line.startswith("3 jobs done in ") for line in lines)
    shown = ["tiny on two", "", "Merging   Acc.", "TIES      73.4  <- best", "Zeroshot   5.1", "", "Test accuracy."]
    assert lines[lines.index("tiny on two") :][: len(shown)] == shown
    assert "Best: merging TIES with 73.4." in lines and lines[-1] == "results/tiny/two/table.csv"
    assert not any("\r" in line or "\033" in line for line in lines), "no control characters in a file"

    again = said(STARTED, (logging.INFO, NOTHING_TO_BE_DONE_MSG, {}))
    assert again.startswith("Nothing to be done") and again.endswith("\nresults/tiny/two/table.csv\n")
    assert "TIES      73.4  <- best" in again and "DVC" not in again


def test_a_report_ends_with_its_path(folder: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`make report` would end without a word on where the page is."""
    (folder / "results").mkdir()
    (folder / "results/report.html").write_text("<html>")
    monkeypatch.setattr(sys, "argv", ["snakemake", "-j2", "--", "report"])
    output = said(STARTED, counted(report=1), starts(1, "report"), ends(1))
    assert output.splitlines()[-1] == "results/report.html"


def test_the_same_error_of_eight_jobs_is_said_once_and_no_command(folder: Path, said: Callable[..., str]) -> None:
    """The reason would be lost between command lines of several kilobytes."""
    logs = [write_log(folder, str(number), "step 1", "error: no room; make some") for number in range(8)]
    other = write_log(folder, "other", "Traceback (most recent call last):", "  File x", "ZeroDivisionError: by zero")
    silent = write_log(folder, "silent")
    output = said(
        STARTED,
        counted(finetune=10, merge=2),
        *[starts(number, "finetune") for number in range(8)],
        *[record for number in range(8) for record in fails(number, "finetune", folder / "loss.csv", logs[number])],
        starts(8, "finetune"),
        *fails(8, "finetune", other),
        starts(9, "finetune"),
        *fails(9, "finetune", silent),
        *FAILED,
    )
    assert output.count("error: no room; make some") == 1
    assert "failed: Do finetune 0 (the whole log, with the command that runs it alone: " + str(logs[0]) in output
    assert "ZeroDivisionError: by zero\n" in output and "ended without a word" in output
    assert "recipe" not in output and "job.py" not in output and "did not complete" not in output
    assert output.splitlines()[-1].startswith("10 of 12 jobs failed, for 3 reasons, given above; 0 are done.")


def test_of_jobs_submitted_together_the_one_that_failed_is_named(folder: Path, said: Callable[..., str]) -> None:
    """On a cluster, a job that never ran would be blamed."""
    jobs = [
        {"jobid": 1, "rule_name": "merge", "log": [str(write_log(folder, "merge", "done in 1.0 s"))]},
        {"jobid": 2, "rule_name": "mask", "log": [str(write_log(folder, "mask", "error: no such tensor"))]},
    ]
    group = {"event": LogEvent.GROUP_ERROR, "groupid": "merging", "aux_logs": [], "job_error_info": jobs}
    output = said(STARTED, counted(merge=1, mask=1), starts(1, "merge"), starts(2, "mask"), (logging.ERROR, "", group))
    assert "failed: Do mask 2" in output and "error: no such tensor" in output and "Do merge" not in output


def test_warnings_and_other_errors_are_shown(said: Callable[..., str]) -> None:
    """A warning would go down with the chatter."""
    output = said(STARTED, (logging.WARNING, "the disk is nearly full", {}), (logging.ERROR, "something else", {}))
    assert output == "the disk is nearly full\nsomething else\n"


def test_quietness_and_other_uses_of_snakemake_are_respected(said: Callable[..., str]) -> None:
    """`snakemake --quiet`, `--unlock` and the like would say more, or less, than they should."""
    run = [STARTED, counted(merge=1), starts(1, "merge"), ends(1)]
    assert said(*run, quiet={Quietness.ALL}) == ""
    assert "merge" not in said(*run, quiet={Quietness.PROGRESS, Quietness.RULES})
    assert said((logging.INFO, "Unlocking working directory.", {})) == "Unlocking working directory.\n"
    assert said(*run, verbose=True) == "", "Snakemake's own handler writes then"


def test_errors_are_one_line_without_snakemakes_places() -> None:
    """The one line for the user would stand between a rule, wildcards and a traceback."""
    wrapped = (
        'InputFunctionException in rule results in file "/x/results.smk", line 1:\nError:\n  WorkflowError:\n'
        "    no benchmark 'tow' in params.yaml; did you mean 'two'?\nWildcards:\n  model=tiny\nTraceback:\n"
        '  File "/x/glue.py", line 53, in wrapper (rule results, line 1, /x/results.smk)'
    )
    assert in_short(wrapped) == "error: no benchmark 'tow' in params.yaml; did you mean 'two'?"
    raised = 'WorkflowError in file "/x/common.smk", line 12:\nfirst line\n- second\n  File "/x/common.smk", line 12'
    assert in_short(raised) == "error: first line\n- second"
    assert in_short("MissingInputException in rule x:\nfoo") == "MissingInputException in rule x:\nfoo"


def test_time_left_is_said_as_well_as_it_is_known(folder: Path) -> None:
    """A user would plan the night by a number that nothing measured."""
    clock = Clock()
    first = Progress(clock, ["results/tiny/two/table.csv"])
    first.begin({"finetune": 4, "evaluate": 2, "total": 6})
    assert "left" not in first.plan()
    for number in (1, 2):
        first.start(job(number, "finetune"))
    clock.now = 100.0
    for number in (1, 2):
        first.finish(number)
    expected = "2 of 6 jobs done, about 3 min left: finetune 2 of 4"
    assert first.last() == expected, "half of the jobs to come are of a stage that was measured"
    for number in (3, 4):
        first.start(job(number, "finetune"))
    clock.now = 200.0
    for number in (3, 4):
        first.finish(number)
    first.start(job(5, "evaluate"))
    clock.now = 500.0
    first.finish(5)
    assert first.last() == "5 of 6 jobs done, about 4 min left: evaluate 1 of 2", "300 s of work, 1.4 jobs at once"
    first.remember()

    second = Progress(clock, ["results/tiny/three/table.csv"])
    second.begin({"finetune": 2, "evaluate": 1, "total": 3})
    assert second.plan().endswith(", about 6 min left"), "2 of 100 s, and one of 300 s, 1.4 at once as before"
    other = Progress(clock, ["results/vit_l14/two/table.csv"])
    other.begin({"finetune": 2, "total": 2})
    assert "left" not in other.plan(), "another model's times mean nothing"
    (folder / ".tallmasks/times.json").write_text('{"finetune": 3')
    assert "left" not in Progress(clock, ["results/tiny/two/table.csv"]).plan(), "a damaged file is no reason to stop"
    assert [lasting(seconds) for seconds in (5, 90, 3600, 9000)] == ["5 s", "2 min", "60 min", "2.5 h"]


def test_the_job_that_lasts_longest_says_where_it_stands(folder: Path) -> None:
    """For an hour of fine-tuning the line would stand still."""
    progress = Progress(Clock(), [])
    progress.begin({"finetune": 2, "total": 2})
    log = write_log(folder, "1")
    for number in (1, 2):
        progress.start(job(number, "finetune"))
    assert progress.now() == "0 of 2 jobs done: finetune 2 of 2"
    log.write_text(f"$ python job.py {'x' * 900}\nstep 300/1000  loss 0.3100  97 examples/s  72 s left\n")
    assert progress.now().endswith("; cars-s1: step 300 of 1000, 1 min left")
    write_log(folder, "1", "cars train: 100 of 200 images decoded")
    assert progress.now().endswith("; cars-s1: cars train: 100 of 200 images decoded")


def test_compilation_is_not_taken_for_what_jobs_take(folder: Path) -> None:
    """The first short jobs of a stage compile what the others find compiled: a run of three minutes would begin with
    twenty, and so would the next one that has many jobs of a stage that this one had one of."""
    clock = Clock()
    progress = Progress(clock, ["results/tiny/two/table.csv"])
    progress.begin({"examples": 1, "mask": 1, "evaluate": 100, "total": 102})
    for number, (rule, seconds) in enumerate([("examples", 2), ("mask", 20), ("evaluate", 25), ("evaluate", 1)]):
        progress.start(job(number, rule))
        clock.now += seconds
        progress.finish(number)
        assert "left" not in progress.last() or number == 3
    assert progress.last().endswith("about 2 min left: evaluate 2 of 100"), "98 of a second"
    progress.remember()
    again = Progress(clock, ["results/tiny/two/table.csv"])
    again.begin({"mask": 1, "evaluate": 100, "total": 101})
    assert again.plan().endswith(", about 2 min left"), "20 s of compilation and masks, and 100 of a second"
    again.begin({"mask": 60, "evaluate": 100, "total": 160})
    assert again.plan().endswith(", about 3 min left"), "nothing is known of sixty masks: as long as evaluations"


def test_the_start_of_a_run_is_not_taken_for_what_jobs_take(folder: Path) -> None:
    """The first short jobs wait for torch: a run of eight minutes would begin with more than an hour."""
    clock = Clock()
    progress = Progress(clock, ["results/tiny/two/table.csv"])
    progress.begin({"examples": 400, "total": 400})
    for number in (1, 2):
        progress.start(job(number, "examples"))
    clock.now = 13.0
    for number in (1, 2):
        progress.finish(number)
    assert "left" not in progress.last()
    for number in (3, 4):
        progress.start(job(number, "examples"))
    clock.now = 14.0
    for number in (3, 4):
        progress.finish(number)
    assert progress.last().endswith("about 3 min left: examples 4 of 400"), "396 of a second, two at once"


def test_a_terminals_last_line_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that stay would be mixed with what was to be written over."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    screen = Screen(stream)
    screen.status("1 of 2 jobs done: something long")
    screen.line("a line")
    screen.status("")
    assert stream.getvalue() == "1 of 2 jobs done: s\r\033[Ka line\n1 of 2 jobs done: s\r\033[K"

    stream.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    for either in (screen, Screen(stream)):
        either.line("error: no room")
    assert stream.getvalue().strip("\0") == "\033[31merror: no room\033[0m\nerror: no room\n"


def test_snakemake_finds_it_and_it_costs_nothing() -> None:
    """Every call of snakemake, jobs among them, would wait for what only the view needs."""
    assert LoggerPluginRegistry().is_installed("tallmasks")
    program = (
        "import sys, snakemake_interface_logger_plugins.base as b; before = set(sys.modules);"
        "import snakemake_logger_plugin_tallmasks; print(*set(sys.modules) - before)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in run.stdout.split()}
    assert names <= {
        "snakemake_logger_plugin_tallmasks",
        "snakemake_interface_logger_plugins",
        *sys.stdlib_module_names,
    }


def test_from_a_subfolder_it_says_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake would only say that there is no Snakefile."""
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/snakemake", "-n"])
    assert place.elsewhere().endswith(f"cd {ROOT}")
    monkeypatch.chdir(ROOT)
    assert place.elsewhere() == ""
