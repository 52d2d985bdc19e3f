"""The lines before the first job and after each: how many jobs, and about how long they take."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.output import ProgressLines, report_plan


def job(rule: str, model: str = "tiny", threads: int = 1, gpu: int = 0, number: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        rule=SimpleNamespace(name=rule), log=[f"logs/{model}/{rule}.log"], output=[rule], threads=threads,
        resources={"gpu": gpu}, jobid=number, wildcards_dict={"model": model},
    )  # fmt: skip


def workflow_of(jobs: list[SimpleNamespace], cores: int = 2) -> SimpleNamespace:
    dag = SimpleNamespace(needrun_jobs=lambda: iter(jobs))
    return SimpleNamespace(dag=dag, local_exec=True, resource_settings=SimpleNamespace(cores=cores))


def planned(capsys: pytest.CaptureFixture[str], jobs: list[SimpleNamespace], cores: int = 2, gpus: int = 0) -> str:
    report_plan(workflow_of(jobs, cores), gpus)
    return capsys.readouterr().err


def test_the_time_is_estimated_from_earlier_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make figures` would run for an hour without a word, or promise the minutes of another model."""
    monkeypatch.chdir(tmp_path)
    assert "2 jobs; the time left is estimated when" in planned(capsys, [job("finetune"), job("merge")])
    folder = Path(".snakemake/metadata/@long")
    folder.mkdir(parents=True)
    for number, (rule, seconds) in enumerate([("finetune", 50), ("finetune", 70), ("merge", 1)]):
        record = {"rule": rule, "log": [f"logs/tiny/{rule}.log"], "starttime": 100.0, "endtime": 100.0 + seconds}
        (folder / str(number)).write_text(json.dumps(record))
    (folder / "older").write_text('{"rule": "finetune"}')
    ten = [job("finetune")] * 10
    assert planned(capsys, ten).startswith("10 jobs, about 5 min, ")
    assert planned(capsys, [job("finetune", threads=2)] * 10).startswith("10 jobs, about 10 min, ")
    assert planned(capsys, ten[:1]).startswith("1 job, about 60 s, ")
    assert "about 10 min" in planned(capsys, [job("finetune", gpu=1)] * 10, cores=16, gpus=1)
    others = planned(capsys, [*ten, job("finetune", "vit_b32"), job("tables")])
    assert others.startswith("12 jobs, about 5 min, ") and "too few have run here yet: finetune, tables" in others


def test_the_time_left_is_of_the_jobs_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a first job of a minute 151 minutes were promised; before the long jobs, 7 minutes for half an hour."""
    monkeypatch.chdir(tmp_path)
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    jobs = [job(rule, number=number) for number, rule in enumerate(["examples"] * 4 + ["finetune"] * 3 + ["tables"])]
    lines, left = ProgressLines(workflow_of(jobs, cores=1), 0), []
    for done, (one, seconds) in enumerate(zip(jobs, [60, 62, 61, 61, 300, 500, 400, 1], strict=True), 1):
        lines.emit(SimpleNamespace(event="job_started", jobs=[one.jobid]))
        clock[0] += seconds
        lines.emit(SimpleNamespace(event="job_finished", job_id=one.jobid))
        lines.emit(SimpleNamespace(event="progress", done=done, total=len(jobs)))
        left.append(capsys.readouterr().err.removeprefix(f"{done} of 8 jobs").removesuffix(f": {one.rule.name} tiny\n"))
    assert left == ["", ", at least 2 min left", ", at least 61 s left", "", "", ", at least 7 min left", "", ""]
