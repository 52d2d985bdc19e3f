"""The line before the first job: how many jobs, and about how long they take."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.output import report_plan


def job(rule: str, model: str = "tiny", threads: int = 1, gpu: int = 0) -> SimpleNamespace:
    name = SimpleNamespace(name=rule)
    return SimpleNamespace(
        rule=name, log=[f"logs/{model}/{rule}.log"], output=[rule], threads=threads, resources={"gpu": gpu}
    )


def planned(capsys: pytest.CaptureFixture[str], jobs: list[SimpleNamespace], cores: int = 2, gpus: int = 0) -> str:
    dag = SimpleNamespace(needrun_jobs=lambda: iter(jobs))
    report_plan(SimpleNamespace(dag=dag, local_exec=True, resource_settings=SimpleNamespace(cores=cores)), gpus)
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
    assert planned(capsys, ten[:1]).startswith("1 jobs, about 60 s, ")
    assert "about 10 min" in planned(capsys, [job("finetune", gpu=1)] * 10, cores=16, gpus=1)
    others = planned(capsys, [*ten, job("finetune", "vit_b32"), job("tables")])
    assert others.startswith("12 jobs, about 5 min, ") and "none has run here yet: finetune, tables" in others
