"""`--choose` and `--score`: values chosen by the number that a command of one's own prints."""

import shlex
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tallmasks
from models_made import run
from tallmasks.io.yaml_files import read_yaml
from tallmasks.operations.choosing import Choice, Trial

TASKS = ("cars", "dtd")
CALL = ["--base", "base", *(word for task in TASKS for word in ("--task", f"{task}={task}")), "-o", "out"]
SCORE = """
import sys
from safetensors.torch import load_file
model, task, *_ = [*sys.argv[1:], "cars"]
with open("runs", "a") as file:
    print(task, file=file)
if sys.argv[-1] == "fails" and len(open("runs").readlines()) == 3:
    sys.exit("no memory left")
print("some words before")
one, other = (load_file(f"{folder}/model.safetensors")["w.weight"] for folder in (model, task))
print(-float((one - other).norm()))
"""
COMMAND = f"{shlex.quote(sys.executable)} score.py {{}}"


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """A base and two tasks whose task vectors do not overlap, and a score: the distance to a task's model."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    every = {"base": torch.randn(40, 40, generator=generator)}
    for number, task in enumerate(TASKS):
        every[task] = every["base"].clone()
        every[task][20 * number : 20 * number + 20] += torch.randn(20, 40, generator=generator)
    for name, tensor in every.items():
        Path(name).mkdir()
        save_file({"w.weight": tensor}, f"{name}/model.safetensors")
    Path("score.py").write_text(SCORE)
    return every


def test_the_best_of_a_grid_is_written_and_recorded(models: dict, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is no classifier would be merged with a guessed alpha."""
    grid = ["--choose", "scaling_coefficient=0.2,0.6,1.2", "--choose", "keep=0.2,1.0"]
    assert run("merge", *CALL, "--method", "ties", *grid, "--score", COMMAND) == 0
    said = capsys.readouterr()
    tried = read_yaml(Path("out/merge.yaml"))["choice"]["tried"]
    assert [(one["scaling_coefficient"], one["keep"]) for one in tried] == [
        (alpha, keep) for alpha in (0.2, 0.6, 1.2) for keep in (0.2, 1.0)
    ]
    for number, one in enumerate(tried):
        alpha, options = one["scaling_coefficient"], {"keep": one["keep"]}
        paths = {task: task for task in TASKS}
        out = tallmasks.merge_checkpoints(
            "base", paths, f"{number}", method="ties", options=options, scaling_coefficient=alpha
        )
        distance = (load_file(out / "model.safetensors")["w.weight"] - models["cars"]).norm()
        assert one["score"] == pytest.approx(-float(distance), rel=1e-6)
    best = max(tried, key=lambda one: one["score"])
    assert (best["scaling_coefficient"], best["keep"]) == (0.6, 1.0), "a grid whose best is inside"
    assert "the best keep, 1, is the largest" in said.err and "scaling_coefficient" not in said.err
    assert f"scaling_coefficient = 0.6, keep = 1.0: {best['score']:g}" in said.out
    assert f"| 0.6 | 1.0 | {best['score']} |" in Path("out/README.md").read_text()
    assert not Path("out.choosing").exists()
    assert run("merge", "out/merge.yaml", "-o", "from-recipe") == 0
    assert Path("from-recipe/model.safetensors").read_bytes() == Path("out/model.safetensors").read_bytes()
    assert "choice" not in read_yaml(Path("from-recipe/merge.yaml"))


def test_what_was_tried_is_not_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    """An evaluation of hours would be repeated after an interruption."""
    call = ["merge", *CALL, "--method", "task_arithmetic", "--choose", "scaling_coefficient=0.2,0.4,0.6,0.8"]
    assert run(*call, "--score", f"{COMMAND} cars fails") == 1
    said = capsys.readouterr().err
    assert "ended with status 1" in said and "no memory left" in said and not Path("out").exists()
    Path("score.py").write_text(SCORE.replace('"fails"', '"never"'))
    assert run(*call, "--score", f"{COMMAND} cars fails") == 0
    assert len(Path("runs").read_text().split()) == 5, "two before, the one that failed is run again, and two more"
    assert len(read_yaml(Path("out/merge.yaml"))["choice"]["tried"]) == 4


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("echo hm; true {}", "printed no number in its last line; it printed:"),
        ("echo nan {}", "no number"),
        ("setsid sleep 60 & sleep 60; echo {}", "did not end within 0.3 seconds"),
        ("printf '\\377 {}'; exit 3", "ended with status 3"),
    ],
)
def test_a_command_without_a_score_ends_the_run(command: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed evaluation would count as a score, or the run hang for a night."""
    options = ["--choose", "scaling_coefficient=0.2,0.4", "--score-timeout", "0.3", "--score", command]
    assert run("merge", *CALL, "--method", "ties", *options) == 1
    assert problem in capsys.readouterr().err and not Path("out").exists()
    assert not Path("out.choosing/model").exists(), "a model of gigabytes"


def test_equal_scores_at_both_ends_are_no_edge(recwarn: pytest.WarningsRecorder) -> None:
    choice = Choice({"keep": [0.1, 0.2, 0.3]}, f"setsid sleep 60 & {COMMAND}")
    trials = [Trial({"keep": keep}, score) for keep, score in ((0.1, 2.0), (0.2, 1.0), (0.3, 2.0))]
    assert choice.best(trials) == trials[0] and not recwarn
    assert choice.best(trials[:2]) == trials[0] and "the best keep, 0.1, is the smallest" in str(recwarn.pop().message)
    assert choice.score(Path("cars"), None) == 0.0, "and a process in the background is not waited for"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--choose", "keep=0.1,0.2"], "belong together"),
        (["--score", "x {}"], "belong together"),
        (["--smaller"], "belong together"),
        (["--score-timeout", "60"], "belong together"),
        (["--choose", "keep=0.1,0.2", "--score", "x {}", "--score-timeout", "nan"], "found nan, expected seconds"),
        (["--choose", "keep=0.1,0.2", "--score", "x {}", "--score-timeout", "1e9"], "found 1e+09, expected seconds"),
        (["--choose", "keep=0.1,0.2", "--score", "x {}", "--score-timeout", "0"], "found 0, expected seconds"),
        (["--choose", "keep=0.1,0.2", "--score", "x"], "lacks {}"),
        (["--choose", "keep=0.1,0.1", "--score", "x {}"], "two or more different values"),
        (["--choose", "keep=1,1.0", "--score", "x {}"], "two or more different values"),
        (["--choose", "keep=0.1,,0.2", "--score", "x {}"], "found '0.1,,0.2', expected two or more"),
        (["--choose", "kept=0.1,0.2", "--score", "x {}"], "keep"),
        (["--choose", "scaling-coefficient=0.1,0.2", "--score", "x {}"], "expected one of scaling_coefficient, "),
        (["--choose", "keep=0.1,2", "--score", "x {}"], "keep"),
        (["--choose", "keep=0.1,0.2", "--option", "keep=0.3", "--score", "x {}"], "also given"),
        (["--choose", "scaling_coefficient=0.2,high", "--score", "x {}"], "scaling_coefficient"),
        (["--choose", "keep=0.1,0.2", "--score", "x {}", "--dry-run"], "--dry-run"),
    ],
)
def test_wrong_choices_are_refused_before_any_work(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("merge", *CALL, "--method", "ties", *options) in (1, 2)
    assert problem in capsys.readouterr().err and not Path("out.choosing").exists()


def test_the_smallest_score_and_lambdas_by_task(models: dict, capsys: pytest.CaptureFixture[str]) -> None:
    """A perplexity would be made as large as possible; or all tasks get one lambda."""
    for number, task in enumerate(TASKS):  # task vectors that overlap, so that lambda counts
        models[task] = models["base"] + torch.randn(40, 40, generator=torch.Generator().manual_seed(number + 1))
        save_file({"w.weight": models[task]}, f"{task}/model.safetensors")
    Path("score.py").write_text(SCORE.replace("print(-float", "print(float"))
    call = ["compress", *CALL, "--method", "ties", "--choose", "mask_lambda=0.1,0.5,4", "--smaller"]
    assert run(*call, "--score", COMMAND) == 2 and "{task}" in capsys.readouterr().err
    assert run(*call, "--score", f"{COMMAND} {{task}}") == 0
    assert Path("runs").read_text().split() == [*TASKS] * 3
    lambdas = tallmasks.load_bundle("out").manifest.mask_lambda
    for task in TASKS:
        distances = {}
        for value in (0.1, 0.5, 4.0):
            tallmasks.compress(
                "base", {name: name for name in TASKS}, f"b{task}{value}", method="ties", mask_lambda=value
            )
            restored = tallmasks.load_bundle(f"b{task}{value}").state_dict(task)["w.weight"]
            distances[value] = float((torch.as_tensor(restored) - models[task]).norm())
        assert len(set(distances.values())) == 3 and lambdas[task] == min(distances, key=distances.get)
