"""A short view of a run: how far it is, how long it will take, why a job failed, where the result is.

A logger plugin of Snakemake's; `profiles/default` switches it on where it is installed, as `make install` does.  The
environment's TALLMASKS_VIEW=full, `make V=1 ...` and Snakemake's own -p, --verbose and --debug-dag give Snakemake's
own output.  A dry run is shown by stage (workflow/bridge/dry_run.py).

Every Snakemake imports this, jobs among them: the standard library alone.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from .errors import in_short, reason
from .place import elsewhere, leave_out_profiles
from .progress import Progress, counted, lasting
from .results import asked_for, summary
from .screen import Screen

SILENT = "error: the job ended without a word: it was killed, or there was not enough memory"
AT_LEAST = 30.0  # seconds between two lines that say how far it is, but for those that end a stage
AT_MOST = 600.0  # without any line
CHATTER = ("At least one job did not complete", "Exiting because a job execution failed", "CalledProcessError")
NO_LOG = "Failed to setup log file"  # of a project that cannot be written, which is said before the first job

if lost := elsewhere():  # Snakemake looks for its Snakefile before it gives a plugin anything to do
    print(lost, file=sys.stderr)
leave_out_profiles()


def _is_dull(record: logging.LogRecord) -> bool:
    """Whether an error says no more than that a job failed, of which its own record says why."""
    message = str(record.msg)
    return any(phrase in message for phrase in CHATTER)


class LogHandler(LogHandlerBase):
    """What Snakemake hands its records to, in a thread of their own."""

    def __post_init__(self) -> None:
        settings = self.common_settings
        quiet = {choice.name for choice in settings.quiet or ()}
        full = os.environ.get("TALLMASKS_VIEW") == "full" or settings.verbose or settings.printshellcmds
        self._aside = bool(full or settings.debug_dag)
        self._dry = settings.dryrun
        self._silent, self._quiet = "ALL" in quiet, bool(quiet & {"PROGRESS", "RULES"})
        self._screen = Screen(sys.stderr)
        self._progress = Progress()
        self._before: list[str] = []  # what is said before it is clear whether jobs are to be run
        self._started: float | None = None
        self._last_line = time.monotonic()
        self._failed: dict[str, int] = {}  # jobs by reason
        self._complete = False
        self._ended = threading.Event()
        self._planned: list[dict[str, Any]] = []  # the jobs of a dry run

    @property
    def writes_to_stream(self) -> bool:
        """Snakemake adds its own handler where no plugin writes."""
        return not self._aside

    @property
    def writes_to_file(self) -> bool:
        return False

    @property
    def has_filter(self) -> bool:
        return True

    @property
    def has_formatter(self) -> bool:
        return True

    @property
    def needs_rulegraph(self) -> bool:
        return False

    # -- records ------------------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a record, and show it where it is for people."""
        if self._aside or self._silent:
            return
        try:
            if record.levelno >= logging.ERROR:
                self._error(record)
            elif record.levelno >= logging.WARNING:
                self._screen.line(str(record.msg).strip())
            else:
                self._note(record)
        except BrokenPipeError:
            raise
        except Exception:
            self.handleError(record)

    def _note(self, record: logging.LogRecord) -> None:
        event, told = getattr(record, "event", None), record.__dict__
        if event == LogEvent.WORKFLOW_STARTED:
            self._started = time.monotonic()
            self._before.clear()
        elif event == LogEvent.RUN_INFO:
            self._begin(told["stats"])
        elif event == LogEvent.JOB_INFO and self._dry:
            self._planned.append(told)
            self._progress.expect(told)
        elif event == LogEvent.JOB_INFO:
            self._progress.start(told)
            self._show()
        elif event == LogEvent.JOB_FINISHED:
            ended = self._progress.finish(told["job_id"])
            self._show(ended)
        elif event == LogEvent.PROGRESS:
            self._progress.grow(told["total"])
        elif event is None and str(record.msg).startswith("Nothing to be done"):
            self._complete = True
            self._screen.line("Nothing to be done: everything that was asked for is there.")
        elif event is None and str(record.msg).startswith("Trying to restart"):
            self._screen.line(str(record.msg))
        elif event is None and self._started is None and record.levelno == logging.INFO:
            self._before.append(str(record.msg))

    def _begin(self, stats: dict[str, int]) -> None:
        self._progress.begin(stats)
        if not self._quiet and not self._dry:
            self._screen.line(self._progress.plan())
            threading.Thread(target=self._beat, daemon=True).start()

    def _show(self, ended: bool = False) -> None:
        """How far it is: always in a terminal's last line, now and then as a line that stays."""
        if self._quiet:
            return
        now = time.monotonic()
        if ended or (not self._screen.live and now - self._last_line > AT_LEAST):
            self._last_line = now
            self._screen.line(self._progress.last())
        self._screen.status(self._progress.now(self._screen.width))

    def _beat(self) -> None:
        while not self._ended.wait(1.0 if self._screen.live else AT_LEAST):
            with self.lock or threading.RLock():
                if self._ended.is_set():
                    return
                if self._screen.live:
                    self._screen.status(self._progress.now(self._screen.width))
                elif time.monotonic() - self._last_line > AT_MOST:
                    self._last_line = time.monotonic()
                    self._screen.line(self._progress.now())

    # -- errors -------------------------------------------------------------------------------------------

    def _error(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event == LogEvent.GROUP_ERROR:
            self._group_failed(record.__dict__)
        elif event == LogEvent.JOB_ERROR:
            if not record.__dict__["indent"]:  # those of a group
                self._job_failed(record.__dict__)
        elif not str(record.msg).startswith(NO_LOG) and not (
            _is_dull(record) and (self._failed or event == LogEvent.ERROR)
        ):
            self._screen.line(in_short(str(record.msg)))

    def _job_failed(self, told: dict[str, Any]) -> None:
        job = self._progress.fail(told["jobid"]) or told["rule_name"]
        why, log = reason(log for log in told["log"] if log.endswith(".log"))
        self._say_why(job, why or SILENT, log)

    def _group_failed(self, told: dict[str, Any]) -> None:
        """Of the jobs that were submitted as one, those whose log says what went wrong."""
        explained = False
        for info in told["job_error_info"]:
            job = self._progress.fail(info["jobid"]) or info["rule_name"]
            why, log = reason(log for log in info["log"] if log.endswith(".log"))
            if "error: " in why:
                explained = True
                self._say_why(job, why, log)
        if not explained:
            why, log = reason(told["aux_logs"])
            self._say_why(f"the jobs submitted as {told['groupid']}", why or SILENT, log)

    def _say_why(self, job: str, why: str, log: str) -> None:
        """The reason last; what failed for a reason that was given already is counted."""
        given_already = why in self._failed
        self._failed[why] = self._failed.get(why, 0) + 1
        if not given_already:
            where = f" (the whole log, with the command that runs it alone: {log})" if log else ""
            self._screen.line(f"failed: {job}{where}\n{why}")

    # -- the end ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Say how it ended: with the result and its path in the last lines."""
        if not self._ended.is_set():
            self._ended.set()
            if not (self._aside or self._silent):
                self._screen.status("")
                self._end()
        super().close()

    def _end(self) -> None:
        for line in self._before:
            self._screen.line(line)
        if self._dry:
            self._show_plan()
        if self._dry or self._started is None:
            return
        self._progress.remember()
        if self._failed:
            count, reasons, progress = sum(self._failed.values()), len(self._failed), self._progress
            why = "one reason" if reasons == 1 else f"{reasons} reasons"
            self._screen.line(
                f"{count} of {progress.total} jobs failed, for {why}, given above; {progress.done} are done. "
                "The same command goes on with what is missing."
            )
            return
        if self._progress.total and self._progress.done == self._progress.total:
            self._complete = True
            self._screen.line(f"{counted(self._progress.done)} done in {lasting(time.monotonic() - self._started)}")
        if self._complete:
            for line in summary(asked_for(sys.argv[1:]), self._progress.written):
                self._screen.line(line)

    def _show_plan(self) -> None:
        """The jobs of a dry run by stage; the bridge, which the Snakefile has imported, knows why they are to run."""
        if not self._planned or self._quiet:
            return
        from bridge import Bridge
        from bridge.dry_run import by_stage

        seconds = self._progress.seconds_left()
        time = "" if seconds is None else f", about {lasting(seconds)} by earlier runs"
        self._screen.line(f"{counted(len(self._planned))} to run{time}:")
        for line in by_stage(Bridge.opened, self._planned):
            self._screen.line(line)
        self._screen.line("Nothing was started. TALLMASKS_VIEW=full (or make V=1) lists every job.")
