"""Between Snakemake and the plan: input functions, job descriptions, and whether a results folder is stale.

Snakemake has one question left here, "is it there?", since a store path carries its recipe's digest.  So every input
is `ancient` (file times decide nothing) and an artifact that exists declares no inputs (the DAG is as small as the
work to do, and a lost intermediate does not re-run what was made from it).
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient, regex_from_filepattern, strip_wildcard_constraints
from snakemake.jobs import Job

from tallmasks.models import cuda
from tallmasks.plan import preflight
from tallmasks.plan.params import FILE, check, from_command_line, overridden, read
from tallmasks.plan.plan import Node, Plan
from tallmasks.plan.project import DRAWN_FOLDERS, Results, Store
from tallmasks.plan.stages import STAGE_VERSIONS
from tallmasks.store.artifacts import digest_of
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.folders import PROVENANCE, SCRATCH, refuse_links_out, set_aside
from tallmasks.store.plain_files import inside

SCRIPTS = Path("workflow/scripts")
TORCH_STEPS = {"head", "finetune", "evaluate_task", "evaluate", "evaluate_thresholds", "evaluate_subset"}
"""Worth starting the warm Python for; the others use it where it runs."""
TOGETHER = {"head", "task_evaluation"}
"""Stages of which one job on a GPU makes several artifacts: loading the model takes as long as their work."""
InputFunction = Callable[..., Any]


def _for_users(function: InputFunction) -> InputFunction:
    """An error that a user can put right reaches Snakemake as its own kind of error: a message, no traceback."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TallmasksError as error:
            raise WorkflowError(str(error)) from None

    return wrapper


def configuration(workflow: Any) -> dict[str, Any]:
    """params.yaml with what `--configfile` and `--config` override, in the place of Snakemake's own `configfile:`.

    Snakemake's evaluates what a file says under `__use_yte__`, takes the last of two values of one key, and follows
    references without end.  Its reading of files named by `--configfile` comes before the Snakefile and cannot be
    helped; what counts here is read again.
    """
    settings = workflow.config_settings
    files = [*([] if settings.replace_workflow_config else [FILE]), *settings.configfiles]
    if FILE in files:
        workflow.configfiles.append(FILE)  # for Snakemake's report
    layers = [read(file) for file in files]
    return functools.reduce(overridden, [*layers, from_command_line(settings.config)])


def begin(workflow: Any) -> tuple[dict[str, Any], Glue]:
    """The configuration and the glue of the Snakefile that is being parsed.

    What is wrong with the parameters ends Snakemake here, in one line without its frames around it.
    """
    try:
        params = configuration(workflow)
        glue = Glue(params, workflow)
        for model in params["build"]:
            glue.plan.model(model)
    except (TallmasksError, WorkflowError) as error:
        sys.exit(f"error: {error}")
    return params, glue


class Glue:
    """What the rules of one parsed Snakefile need.

    Args:
        params: the content of params.yaml with what `--config` overrides.
        workflow: Snakemake's workflow object.
    """

    def __init__(self, params: Mapping[str, Any], workflow: Any) -> None:
        self.workflow = workflow
        _for_users(check)(params, Path(workflow.basedir))
        self._lock: IO[str] | None = None
        self._forced: dict[str, bool] = {}
        self._warm: subprocess.Popen[bytes] | None = None
        self._from_outside: dict[str, Node] = {}
        self._alike: dict[tuple[str, str], list[Node]] = {}
        self._gpus_of: dict[str, int] = {}
        self.plan: Plan = _for_users(Plan)(params)
        self.store = Store()
        self.results = Results(self.plan, self.store)

    def end_quietly_on_ctrl_c(self) -> None:
        """One line instead of the tracebacks of whatever was at work.

        On this machine this process just dies and its jobs with it, which leaves nothing half-written; jobs that were
        submitted to a cluster are cancelled by Snakemake.
        """
        if not self.workflow.is_main_process or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            return  # a job, or in the background of a shell script

        def end(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            said = "Interrupted. What is done is kept: the same command goes on with what is missing."
            os.write(sys.stderr.fileno(), f"\n{said}\n".encode())
            if not self.workflow.local_exec and self.workflow.scheduler:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGINT, end)

    # -- one writer per working copy ----------------------------------------------------------------------

    @functools.cached_property
    def _pruned(self) -> bool:
        """Whether an artifact that exists is a leaf of the DAG, unless it is made anew.

        Asked first when the DAG is built: only then are the settings and the executor known.
        """
        if self._looking:
            return False
        self._check_profile()
        self._check_machine()
        self._leave_files_alone()
        refuse_links_out()
        if self._writing:
            self._become_the_writer()
        return True

    @property
    def _writing(self) -> bool:
        """Whether this is the process that has jobs make files."""
        return self.workflow.is_main_process and self.workflow.executor_plugin and not self.workflow.dryrun

    @property
    def _looking(self) -> bool:
        """Whether the DAG is there to be looked at as a whole (--report, --dag) and nothing is run, not even dry."""
        return self.workflow.is_main_process and not self.workflow.executor_plugin

    def _check_profile(self) -> None:
        settings, execution = self.workflow.dag_settings, self.workflow.execution_settings
        triggers = {str(trigger) for trigger in settings.rerun_triggers}
        if self.workflow.is_main_process and (triggers != {"mtime"} or not execution.ignore_incomplete):
            raise WorkflowError(
                "profiles/default is not in force, and the workflow is only right under it: run snakemake in the "
                "project's folder, without --workflow-profile and without other --rerun-triggers"
            )

    def _leave_files_alone(self) -> None:
        """Switch off what Snakemake does to files around a job, and must not where they appear by rename: removing a
        finished output because an input is dated in the future, refusing to replace a read-only one, and copying the
        old results back over themselves after a job that failed (`update` in the rules keeps them from being removed
        before it)."""

        async def nothing(*_: Any) -> None:
            pass

        dag, persistence = self.workflow.dag, self.workflow.persistence
        dag.check_output_mtime = nothing
        Job.check_protected_output = nothing
        persistence.backup_output = persistence.cleanup_backup = lambda path: None
        persistence.restore_output = Path.exists

    def _check_machine(self) -> None:
        """Refuse what could only wait for ever: no core to run a job on, or a cluster that is not there."""
        settings, executor = self.workflow.resource_settings, self.workflow.executor_plugin
        if self.workflow.dryrun or not self.workflow.is_main_process:
            return
        if 0 in (settings.cores, settings.nodes):
            raise WorkflowError("-j0 gives the jobs no core to run on; expected -j1 or more, or -n for a dry run")
        if executor and executor.name == "slurm" and (problem := no_slurm()):
            raise WorkflowError(f"{problem}; run this where slurm is, or without --profile profiles/slurm")

    def _become_the_writer(self) -> None:
        """Hold a kernel lock for the life of this process: a second Snakemake waits, and a killed one leaves nothing
        to unlock (Snakemake's own lock is a plain file, which would stay)."""
        SCRATCH.mkdir(exist_ok=True)
        self._lock = (SCRATCH / "writer.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another snakemake is at work in this folder; waiting for it to end ...", file=sys.stderr)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _warm_up(self) -> None:
        """Start the warm Python, once, where this process runs jobs itself: it is theirs, and dies with this process.

        Here, in the main thread and before the first job that is worth it: the kernel takes the end of the thread that
        starts it for the end of its owner.
        """
        if self._lock is None or self._warm or self.workflow.executor_plugin.name != "local":
            return
        if os.environ.get("TALLMASKS_WARM", "1") == "1" and threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-P", str(SCRIPTS / "warm.py"), str(SCRATCH / "warm"), str(os.getpid())]
            self._warm = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for Snakemake
            )
            assert self._warm.stdout
            with self._warm.stdout as said:
                said.readline()  # it can be connected to, or has ended

    # -- the store ----------------------------------------------------------------------------------------

    def inputs(self, kind: str) -> InputFunction:
        """Input function of the rule that makes `kind`: the files of each role, as named inputs."""

        @_for_users
        def files_by_role(wildcards: Any) -> dict[str, Any]:
            node = self.plan.find(kind, wildcards.model, wildcards.name)
            wrong = None if self._looking else self.store.wrong(node)
            if self._pruned and self.store.there(node) and not self._made_anew(node):
                return {}
            inside(Path(node.path).parent)
            self._count_gpus(wildcards.model)
            if kind in TOGETHER:
                self._alike.setdefault((kind, wildcards.model), []).append(node)
            if kind in preflight.KINDS:
                self._from_outside[node.path] = node
            made = {role: self._inputs(nodes) for role, nodes in node.inputs.items()}
            files = made | {role: ancient([str(path)]) for role, path in node.sources.items()}
            return files | (self._put_away(node, wrong) if wrong else {})

        return files_by_role

    def _inputs(self, nodes: Iterable[Node]) -> list[str]:
        """Artifacts as a job's inputs: `ancient`, but for what is made anew, so that the job follows from it: Snakemake
        does not look at the marker of a job below one that has to run."""
        return [node.path if self._made_anew(node) or self._is_wrong(node) else ancient(node.path) for node in nodes]

    def _is_wrong(self, node: Node) -> bool:
        return not self._looking and self.store.wrong(node) is not None

    def _made_anew(self, node: Node) -> bool:
        """Whether the user forces (-f, -F, -R) the job of an artifact, or one that it follows from."""
        if not self._forcing:
            return False
        if node.path not in self._forced:
            inputs = (needed for nodes in node.inputs.values() for needed in nodes)
            self._forced[node.path] = self._is_forced(Path(node.path)) or any(map(self._made_anew, inputs))
        return self._forced[node.path]

    @property
    def _forcing(self) -> bool:
        return bool(self.workflow.dag.forcefiles or self.workflow.dag.forcerules)

    def _is_forced(self, path: Path, prefix: str | None = None) -> bool:
        """Whether the user forces the job that writes `path`, and what lies beside it and begins with `prefix`."""
        dag, begins = self.workflow.dag, path.name if prefix is None else prefix
        files = map(Path, dag.forcefiles)
        return any(rule.is_producer(str(path)) for rule in dag.forcerules) or any(
            file.parent == path.parent and file.name.startswith(begins) for file in files
        )

    def _put_away(self, node: Node, wrong: str) -> dict[str, Any]:
        """Make room for an artifact that is there and has to be made anew; in a dry run, an input that says so."""
        if not self._writing:
            return {"stale": self._stale_marker(Path(node.path), node.digest, [Path(node.path)])}
        if target := set_aside(Path(node.path)):
            print(f"{wrong}: moved to {target}, and made again", file=sys.stderr)
        return {}

    def job(self, kind: str, script: str, **logs: str) -> InputFunction:
        """Params function: the shell words that run `script` on the node which a rule's wildcards name.

        `logs` are what else the job writes, outside the store: patterns of the rule's wildcards, by role.
        """

        @_for_users
        def command(wildcards: Any, threads: int, resources: Any) -> str:
            node = self.plan.find(kind, wildcards.model, wildcards.name)
            outputs = {"artifact": node.path} | {role: path.format(**wildcards) for role, path in logs.items()}
            ahead = _ahead(kind, wildcards.model) if kind in TOGETHER and resources.gpu and self._leases else None
            return self.command(script, node.recipe, _files(node), outputs, threads, resources.gpu, ahead)

        return command

    def command(
        self,
        script: str,
        recipe: Mapping[str, Any],
        inputs: Mapping[str, Iterable[Path | str]],
        outputs: Mapping[str, Path | str],
        threads: int,
        gpus: int = 0,
        ahead: Path | None = None,
    ) -> str:
        told = _told(recipe, inputs, outputs) | {"threads": threads, "gpus": gpus}
        if ahead:
            told["ahead"] = str(ahead)
        if script in TORCH_STEPS:
            self._warm_up()
        text = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
        # `exec` makes the job a child of Snakemake itself, with which it dies
        return "exec " + shlex.join([sys.executable, str(SCRIPTS / "job.py"), str(SCRIPTS / f"{script}.py"), text])

    def check_sources(self) -> None:
        """Before the first job: stop with one message for each dataset and model that cannot be had."""
        if problems := preflight.unavailable(self._from_outside.values()):
            raise WorkflowError("\n".join(["nothing was started, since it is not all on this machine:", *problems]))

    def resource(self, step: str, name: str) -> InputFunction:
        """Resource function: what params.yaml gives this kind of step for the model of a job."""

        @_for_users
        def value(wildcards: Any) -> int:
            found = self.plan.resources(wildcards.model, step)[name]
            if name == "gpu":
                self._gpus_of[wildcards.model] = max(found, self._gpus_of.get(wildcards.model, 0))
            return found

        return value

    def threads(self, step: str) -> InputFunction:
        """Threads function, likewise."""
        return self.resource(step, "threads")

    def pretraining(self, model: str, script: str) -> InputFunction:
        """Params function: the shell words that pretrain `model` anew, in place of the weights that ship with it."""

        @_for_users
        def command(wildcards: Any, threads: int) -> str:
            recipe, output = self.plan.pretraining(model)
            inside(output)
            return self.command(script, recipe, {}, {"weights": output}, threads)

        return command

    def missing(self, model: str, *kinds: str) -> InputFunction:
        """Input function of what a DVC stage commits: every artifact behind the benchmarks of `model`, or those of some
        kinds, that is not there.  All of them, since DVC would drop from dvc.lock what it does not find.

        Examples that were downloaded are no part of it: DVC does not version them, and only jobs need them.
        """

        @_for_users
        def files(wildcards: Any) -> list[str]:
            _ = self._pruned
            wanted = set(kinds or STAGE_VERSIONS) - (
                set() if self.plan.models[model]["tasks"] == "drawn" else {"examples"}
            )
            return [
                node.path
                for node in self.plan.closure(model)
                if node.kind in wanted and (self._made_anew(node) or not self.store.there(node))
            ]

        return files

    # -- GPUs ---------------------------------------------------------------------------------------------

    @property
    def _leases(self) -> bool:
        """Whether this process runs jobs on this machine, each with a lease.  On a cluster the scheduler assigns."""
        flow = self.workflow
        return flow.is_main_process and not self._looking and flow.local_exec and not flow.dryrun

    @functools.cached_property
    def _devices(self) -> list[cuda.Device]:
        return cuda.usable()

    def _count_gpus(self, model: str) -> None:
        """Let jobs share as many GPUs as there are, where the user gave no number: a job that waits for a lease would
        hold its cores.

        Asked while the DAG is built, since Snakemake takes no limit later, and for models that use GPUs alone.
        """
        uses = any(self.plan.resources(model, step)["gpu"] for step in ("evaluation", "finetuning"))
        if uses and self._leases and "gpu" not in self.workflow.global_resources and self._devices:
            self.workflow.register_resource("gpu", len(self._devices))

    def write_ahead(self) -> None:
        """Before the first job: what jobs of one stage that use a GPU are to make, so that one of them may make more
        than its own (workflow/scripts/ahead.py)."""
        if not self._leases:
            return
        shutil.rmtree(SCRATCH / "ahead", ignore_errors=True)  # of an earlier run, whose inputs may have been others
        for (kind, model), nodes in self._alike.items():
            if self.plan.resources(model, "evaluation")["gpu"]:
                path = _ahead(kind, model)
                path.parent.mkdir(parents=True, exist_ok=True)
                jobs = [_told(node.recipe, _files(node), {"artifact": node.path}) for node in nodes]
                path.write_text(json.dumps(jobs))

    def check_gpus(self) -> None:
        """Before the first job, and so before anything is downloaded: stop where a job cannot compute on a GPU."""
        if not self._leases:
            return
        limit = self.workflow.global_resources.get("gpu")
        none_allowed = limit is not None and limit.value == 0
        jobs = [job for job in self.workflow.dag.needrun_jobs() if job.resources.get("gpu", 0) or none_allowed]
        wanted = max((self._gpus_of.get(getattr(job.wildcards, "model", ""), 0) for job in jobs), default=0)
        if not wanted:
            return
        try:
            if none_allowed:
                raise TallmasksError(f"--resources gpu=0 leaves none, {cuda.ON_A_CPU}")
            devices = cuda.enough(wanted)
            if why := cuda.refusal(cuda.elsewhere(",".join(device.uuid for device in devices))):
                raise TallmasksError(why)
        except TallmasksError as error:
            raise WorkflowError(f"nothing was started, since jobs are to compute on a GPU: {error}") from None

    # -- results ------------------------------------------------------------------------------------------

    def views(self, models: Iterable[str]) -> list[str]:
        """The table of every benchmark that `models` have the tasks of."""
        return [
            f"results/{model}/{benchmark}/table.csv" for model in models for benchmark in self.plan.benchmarks(model)
        ]

    def result_inputs(self, view: str, checkpoints: Any = None) -> InputFunction:
        """Input function of a results folder: what it is written from, and a marker if its content is not right.

        `checkpoints` is Snakemake's object of that name: "subsets" waits for the task orders, which say what else it is
        written from.
        """

        @_for_users
        def files_by_role(wildcards: Any) -> dict[str, Any]:
            _ = self._pruned
            recipe, files = self._result(view, wildcards)
            folder = Results.folder(view, wildcards.model, wildcards.benchmark)
            fresh = self.results.view_staleness(view, wildcards.model, wildcards.benchmark) is None
            if fresh and self._pruned and not self._written_anew(view, wildcards.model, wildcards.benchmark):
                return {}
            if view == "subsets" and "subsets" not in files:
                (orders,) = self.plan.view_artifacts(view, wildcards.model, wildcards.benchmark)["orders"]
                checkpoints.task_orders.get(model=orders.model, name=orders.name)
            made = self.results.artifacts(view, wildcards.model, wildcards.benchmark)
            artifacts = {node.path: node for nodes in made.values() for node in nodes}
            shipped = {path for paths in files.values() for path in paths} - artifacts.keys()
            inputs = self._inputs(artifacts[path] for path in sorted(artifacts)) + ancient(sorted(shipped))
            return {"artifacts": inputs} | ({} if fresh else {"stale": self._marker_of(folder, recipe)})

        return files_by_role

    def result_job(self, view: str, script: str) -> InputFunction:
        """Params function: the shell words that write a results folder."""

        @_for_users
        def command(wildcards: Any, threads: int) -> str:
            recipe, files = self._result(view, wildcards)
            folder = Results.folder(view, wildcards.model, wildcards.benchmark)
            return self.command(script, recipe, files, {"folder": folder}, threads)

        return command

    def _result(self, view: str, wildcards: Any) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """A results folder's recipe, and its input files by role (`<seed>/<role>`)."""
        self.plan.model(wildcards.model)
        recipe = self.plan.view(view, wildcards.model, wildcards.benchmark)
        artifacts = self.results.artifacts(view, wildcards.model, wildcards.benchmark)
        files = {role: [node.path for node in nodes] for role, nodes in artifacts.items()}
        for role, source in self.plan.pretrained(wildcards.model).items():
            files.setdefault(role, [str(source)])
        return recipe, files

    def _written_anew(self, view: str, model: str, benchmark: str) -> bool:
        """Whether the user forces the job of a results folder, or one that it follows from."""
        if not self._forcing:
            return False
        nodes = [node for nodes in self.results.artifacts(view, model, benchmark).values() for node in nodes]
        folder = Results.folder(view, model, benchmark)
        return self._is_forced(folder / PROVENANCE, "") or any(map(self._made_anew, nodes))

    def not_made(self) -> str:
        """A pattern of the paths below results/ that no rule declared so far makes."""
        patterns = [regex_from_filepattern(pattern).removeprefix("results/") for pattern in self._result_patterns()]
        made = [re.sub(r"\(\?P=\w+\)", "[^/]+", re.sub(r"\(\?P<\w+>", "(?:", pattern)) for pattern in patterns]
        return f"(?!{'|'.join(made)}).+"

    def unknown(self, wildcards: Any) -> str:
        """Input function of a file in results/ that no rule makes: says which one may be meant."""
        plain = [strip_wildcard_constraints(pattern) for pattern in self._result_patterns()]
        known = {
            pattern.replace("{model}", model).replace("{benchmark}", benchmark)
            for pattern in plain
            for model in self.plan.models
            for benchmark in self.plan.params["benchmarks"]
        }
        target = f"results/{wildcards.path}"
        raise WorkflowError(f"{target}: no rule makes a file of that name{nearest(target, sorted(known))}")

    def _result_patterns(self) -> list[str]:
        outputs = (str(pattern) for rule in self.workflow.rules for pattern in rule.output)
        return [pattern for pattern in outputs if pattern.startswith("results/")]

    # -- figures and tables -------------------------------------------------------------------------------

    def drawn_inputs(self, kind: str, name: str) -> InputFunction:
        """Input function of a figure or a table: the results files that it shows, and a marker if it is not right."""

        @_for_users
        def files_by_role(wildcards: Any) -> dict[str, Any]:
            _ = self._pruned
            recipe, folder = self._drawn(kind, wildcards.model, name)
            fresh = self.results.drawn_staleness(recipe) is None
            shown = (part.rsplit("/", 1) for part in recipe["inputs"])
            forced = self._is_forced(folder / f"{name}.{PROVENANCE}", f"{name}.") or any(
                self._written_anew(view, wildcards.model, benchmark) for benchmark, view in shown
            )
            if fresh and self._pruned and not forced:
                return {}
            # not `ancient`: below a job that has to run, Snakemake looks at nothing else than whether it is
            return {"results": self._shown(recipe)} | ({} if fresh else {"stale": self._marker_of(folder, recipe)})

        return files_by_role

    def drawn_job(self, kind: str, name: str, script: str) -> InputFunction:
        """Params function: the shell words that draw a figure or write a table."""

        @_for_users
        def command(wildcards: Any, threads: int) -> str:
            recipe, folder = self._drawn(kind, wildcards.model, name)
            shown = zip(recipe["inputs"], self._shown(recipe), strict=True)
            inputs = {role: [path] for role, path in shown}
            return self.command(script, recipe, inputs, {"folder": folder}, threads)

        return command

    @staticmethod
    def drawn(kind: str, names: Iterable[str], ending: str, models: Iterable[str]) -> list[str]:
        """A file of each figure or table of `models`; its rule writes the others with it."""
        return [f"results/{model}/{DRAWN_FOLDERS[kind]}/{name}.{ending}" for model in models for name in names]

    def shown(self, kind: str, names: Iterable[str], models: Iterable[str]) -> InputFunction:
        """Input function of a target: a file of each results folder that some figures or tables of `models` show."""

        @_for_users
        def files(wildcards: Any) -> list[str]:
            recipes = [self._drawn(kind, model, name)[0] for model in models for name in names]
            return sorted({path for recipe in recipes for path in self._shown(recipe)})

        return files

    # -- the report ---------------------------------------------------------------------------------------

    @classmethod
    @_for_users
    def always(cls, wildcards: Any) -> list[str]:
        """Input function of what is to be made anew whenever it is asked for: a file that is newer than any other."""
        refuse_links_out()
        return cls._marker_of(Path("results", wildcards.model, "report"), {"digest": "always"})

    def about_command(self, script: str) -> InputFunction:
        """Params function: the shell words that write what a report says of a model as a whole."""

        @_for_users
        def command(wildcards: Any, threads: int) -> str:
            folder = Path("results", wildcards.model, "report")
            recipe = {"params": {"model": wildcards.model, "params": self.plan.params}}
            return self.command(script, recipe, {}, {"folder": folder}, threads)

        return command

    @staticmethod
    def report_command(path: str, target: str) -> str:
        """The shell words that have Snakemake write its report on a target; it takes its place when it is whole."""
        new = str(SCRATCH / "report.html")
        snakemake = [sys.executable, "-m", "snakemake", "--cores", "1", "--report", new, target]
        return f"{shlex.join(snakemake)} && {shlex.join(['mv', '--', new, path])}"

    def _drawn(self, kind: str, model: str, name: str) -> tuple[dict[str, Any], Path]:
        recipe = self.plan.figure(model, name) if kind == "figure" else self.plan.paper_table(model, name)
        return recipe, Results.drawn_folder(kind, model)

    @staticmethod
    def _shown(recipe: Mapping[str, Any]) -> list[str]:
        """A file of each results folder that a figure or table shows; its rule writes the others with it."""
        folder = Path("results", recipe["params"]["model"])
        return [str(folder / part.removesuffix("/benchmark") / PROVENANCE) for part in recipe["inputs"]]

    @classmethod
    def _marker_of(cls, folder: Path, recipe: Mapping[str, Any]) -> list[str]:
        return cls._stale_marker(folder, recipe["digest"], [path for path in folder.glob("*") if path.is_file()])

    @staticmethod
    def _stale_marker(what: Path, digest: str, files: list[Path]) -> list[str]:
        """A file that is newer than `files`, which are stale, with content of its own: Snakemake passes over a newer
        input whose checksum it has seen."""
        if not files:
            return []
        marker = SCRATCH / "stale" / digest_of([str(what), digest])
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text(f"{what} {time.time_ns()}\n")
        newest = max(path.lstat().st_mtime for path in files) + 1
        os.utime(marker, (newest, newest))
        return [str(marker)]


def no_slurm() -> str:
    """Why no job can be submitted to slurm; nothing where it can."""
    for program in ("sbatch", "sinfo"):
        if not shutil.which(program):
            return f"there is no {program} on this machine's PATH"
    try:
        asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "slurm's controller has not answered sinfo for a minute"
    return f"slurm does not answer: {' '.join(asked.stderr.split())}" if asked.returncode else ""


def _ahead(kind: str, model: str) -> Path:
    return SCRATCH / "ahead" / f"{model}-{kind}.json"


def _told(
    recipe: Mapping[str, Any], inputs: Mapping[str, Iterable[Path | str]], outputs: Mapping[str, Path | str]
) -> dict[str, Any]:
    """A job as its JSON says it."""
    return {
        "recipe": recipe,
        "inputs": {role: [str(path) for path in paths] for role, paths in inputs.items()},
        "outputs": {role: str(path) for role, path in outputs.items()},
    }


def _files(node: Node) -> dict[str, list[Path]]:
    """A node's input files by role: artifacts of the store and source files."""
    return {role: [Path(needed.path) for needed in nodes] for role, nodes in node.inputs.items()} | {
        role: [path] for role, path in node.sources.items()
    }
