"""The short view of a run: what a user reads of Snakemake's records."""

import io
import itertools
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

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
        "is_checkpoint": rule == "task_orders",
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
    rule = "WorkflowError:\nTarget rules may not contain wildcards. Please specify concrete files or a rule without"
    assert in_short(rule).startswith("error: this is the name of a rule; a target is a file under results/")
    assert in_short("MissingInputException in rule x:\nfoo") == "MissingInputException in rule x:\nfoo"


class Jobs:
    """A run whose jobs start together and take some seconds."""

    def __init__(self, clock: Clock, target: str, **stats: int) -> None:
        self.clock, self.numbers = clock, itertools.count()
        self.progress = Progress(clock, [target])
        self.progress.begin(stats | {"total": sum(stats.values())})

    def run(self, rule: str, seconds: float, count: int = 1) -> str:
        """Run `count` jobs at once; what the line says after them."""
        numbers = list(itertools.islice(self.numbers, count))
        for number in numbers:
            self.progress.start(job(number, rule))
        self.clock.now += seconds
        for number in numbers:
            self.progress.finish(number)
        return self.progress.last()


TWO, THREE = "results/tiny/two/table.csv", "results/tiny/three/table.csv"


def test_no_time_is_said_that_nothing_measured(folder: Path) -> None:
    """A user would plan the night by it, or wait two minutes for the end of "less than a minute"."""
    clock = Clock()
    first = Jobs(clock, TWO, finetune=4, evaluate=2)
    assert "left" not in first.progress.plan()
    assert first.run("finetune", 100, 2) == "2 of 6 jobs done: finetune 2 of 4", "evaluations were not measured"
    first.run("finetune", 100, 2)
    assert first.run("evaluate", 300) == "5 of 6 jobs done, about 4 min left: evaluate 1 of 2", "1.4 jobs at once"
    first.progress.remember()

    again = Jobs(clock, THREE, finetune=2, evaluate=1)
    assert again.progress.plan().endswith(", about 6 min left"), "2 of 100 s, and one of 300 s, 1.4 at once as before"
    assert "left" not in Jobs(clock, THREE, evaluate=10, seeds=1).progress.plan(), "seeds were not measured"
    assert "left" not in Jobs(clock, "results/vit_l14/two/table.csv", finetune=2).progress.plan(), "another model"
    (folder / ".tallmasks/times.json").write_text('{"finetune": 3')
    assert "left" not in Jobs(clock, TWO, finetune=2).progress.plan(), "a damaged file is no reason to stop"
    assert [lasting(seconds) for seconds in (90, 3600, 9000)] == ["2 min", "60 min", "2.5 h"]


def test_nothing_is_said_below_a_minute(folder: Path) -> None:
    """The last job may be the longest, as an evaluation with the widest grid."""
    jobs = Jobs(Clock(), TWO, evaluate=4)
    assert jobs.run("evaluate", 70).endswith("about 4 min left: evaluate 1 of 4")
    jobs.run("evaluate", 10, 2)
    assert jobs.progress.last() == "3 of 4 jobs done: evaluate 3 of 4", "30 s by the mean"


def test_the_mean_of_an_earlier_run_counts_until_this_one_has_enough_jobs(folder: Path) -> None:
    """The first evaluations of a run are short, since they have no grid: a run of six minutes would have 10 s left."""
    clock = Clock()
    earlier = Jobs(clock, TWO, evaluate=10)
    for seconds in (70, 1, 99, 70, 70, 70, 70, 70, 70, 70):
        earlier.run("evaluate", seconds)
    earlier.progress.remember()
    jobs = Jobs(clock, THREE, evaluate=20)
    assert jobs.run("evaluate", 1).endswith("about 21 min left: evaluate 1 of 20"), "19 of 66 s"
    for _ in range(9):
        jobs.run("evaluate", 20)
    assert jobs.progress.last().endswith("about 3 min left: evaluate 10 of 20")


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


def test_a_narrow_terminal_keeps_the_longest_jobs_step_and_time(folder: Path) -> None:
    """At 80 columns the line was cut where the step and the time left stood."""
    clock = Clock()
    jobs = Jobs(clock, TWO, finetune=9, evaluate=9, merge=9)
    jobs.run("finetune", 100)
    jobs.run("evaluate", 100)
    jobs.run("merge", 100)
    write_log(folder, "9", "step 300/1000  loss 0.3100  97 examples/s  720 s left")
    for number, rule in ((9, "finetune"), (10, "evaluate"), (11, "merge")):
        jobs.progress.start(job(number, rule))
    count, left, step = " 3 of 27 jobs done", ", about 40 min left", "; cars-s9: step 300 of 1000, 12 min left"
    stages = [": finetune 2 of 9", ", evaluate 2 of 9, merge 2 of 9"]
    assert jobs.progress.now() == f"{count}{left}{''.join(stages)}{step}"
    assert jobs.progress.now(99) == f"{count}{left}{stages[0]}{step}"
    assert jobs.progress.now(79) == f"{count}{left}{step}"
    assert jobs.progress.now(70) == f"{count}{step}"


def test_examples_are_timed_under_the_name_of_their_catalogue(folder: Path) -> None:
    """No target has that name, so no run would say its hours beforehand."""
    times = {"examples": {"drawn": 60.0}, "finetune": {"tiny": 600.0}}
    (folder / ".tallmasks/times.json").write_text(json.dumps(times))
    assert Jobs(Clock(), TWO, examples=2, finetune=3).progress.plan().endswith(", about 32 min left")


def test_jobs_that_until_leaves_out_are_not_counted(folder: Path, said: Callable[..., str]) -> None:
    """Snakemake counts them in its progress: "14 jobs" would become "4 of 72", and would never be done."""

    def progress(total: int) -> tuple[int, None, dict[str, Any]]:
        return logging.INFO, None, {"event": LogEvent.PROGRESS, "done": 1, "total": total}

    output = said(STARTED, counted(finetune=1), starts(1, "finetune"), progress(72), ends(1), progress(72))
    assert "1 of 1 job done" in output and "72" not in output and "\n1 job done in " in output
    one, added = counted(task_orders=1), progress(2)  # a checkpoint, after which there is another job
    output = said(STARTED, one, starts(1, "task_orders"), ends(1), added, starts(2, "evaluate"), ends(2), added)
    assert "\n2 jobs done in " in output


def test_start_up_is_not_taken_for_what_jobs_take(folder: Path) -> None:
    """The first short jobs of a stage wait for torch, and compile what the others find compiled: a run of eight minutes
    would begin with more than an hour, and so would the next one."""
    clock = Clock()
    jobs = Jobs(clock, TWO, examples=400, mask=2)
    assert "left" not in jobs.run("mask", 20, 2)
    assert "left" not in jobs.run("examples", 13, 2)
    assert jobs.run("examples", 1, 2).endswith("about 3 min left: examples 4 of 400"), "396 of a second, two at once"
    jobs.progress.remember()
    assert Jobs(clock, TWO, mask=2, examples=400).progress.plan().endswith(", about 4 min left"), "20 s for each mask"
    assert "left" not in Jobs(clock, TWO, mask=60, examples=400).progress.plan(), "of masks, start-up alone is known"


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


def test_from_a_subfolder_it_says_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake would only say that there is no Snakefile."""
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/snakemake", "-n"])
    assert place.elsewhere().endswith(f"cd {ROOT}")
    monkeypatch.chdir(ROOT)
    assert place.elsewhere() == ""
