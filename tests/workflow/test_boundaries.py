"""The workflow's own bad input: what is wrong is said in one message, and nothing is written elsewhere."""

import re
from pathlib import Path

import pytest

from conftest import shipped_params
from project import Project, Run, lay_out


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project with nothing built; each test undoes its changes."""
    return lay_out(tmp_path_factory.mktemp("bare") / "project")


def message(run: Run) -> str:
    assert "Traceback" not in run.output and "InputFunctionException" not in run.output
    return run.output


TABLE = "results/tiny/two/table.csv"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("results/tiny/tow/table.csv", "did you mean 'two'"),
        ("results/mine/all/table.csv", "snakemake --configfile FILE.yaml"),
        ("all --config build=[tinny]", "did you mean 'tiny'"),
    ],
)
def test_a_mistyped_target_is_named(bare: Project, target: str, expected: str) -> None:
    """A user would look for the letter that is wrong, or read a traceback."""
    assert expected in message(bare.run("snakemake", "-n", *target.split(), fails=True))


def refused(run: Run) -> str:
    """The one line that a command ended with, before it planned anything."""
    (line,) = (line for line in message(run).splitlines() if not line.startswith("Using workflow specific profile"))
    return line.removeprefix("error: ")


def test_nothing_in_params_is_evaluated(bare: Project) -> None:
    """A params.yaml from somebody else would run their code, through a key that Snakemake evaluates."""
    path, evil = bare.path("params.yaml"), "?__import__('pathlib').Path('ran').touch()"
    path.write_text(f"__use_yte__: true\n{path.read_text()}\nmore: {evil}\n")
    assert "'__use_yte__'" in refused(bare.dry_run(TABLE, fails=True))
    bare.git("checkout", "-q", "params.yaml")
    run = bare.run("snakemake", "-n", "--config", "__use_yte__=true", f"more={evil}", "--", TABLE, fails=True)
    assert "'__use_yte__'" in refused(run)
    assert not bare.path("ran").exists()


def test_params_are_overridden_key_by_key(bare: Project) -> None:
    """`--config` and `--configfile` would be ignored, or could not set a number inside a list."""
    bare.path("more.yaml").write_text("seeds: [3]\ngrids: {mask_lambda: [0.3]}\n")
    options = ["--configfile", "more.yaml", "--config", "seeds=[7]"]
    run = bare.run("snakemake", "-n", *options, "--", TABLE)
    bare.path("more.yaml").unlink()
    assert "-s7-" in run.output and "-s0-" not in run.output and "-s3-" not in run.output


def test_a_mistake_in_another_file_is_not_looked_for_in_params(bare: Project) -> None:
    """A user would look for the key in params.yaml, which does not have it."""
    bare.path("compare.yaml").write_text("models: {mine: {famly: text_classifier}}\n")
    run = bare.run("snakemake", "-n", "--configfile", "compare.yaml", "--", TABLE, fails=True)
    bare.path("compare.yaml").unlink()
    assert refused(run).startswith("params.yaml: models.mine: there is no key 'famly'")
    assert refused(run).endswith("(params.yaml is overridden by compare.yaml)")
    assert "overridden" not in message(bare.dry_run("results/tiny/tow/table.csv", fails=True))


def test_a_run_without_a_network_stops_at_once(bare: Project, tmp_path: Path) -> None:
    """Jobs would fail one by one over hours, each with a traceback of its own."""
    entry = shipped_params()["models"]["vit_b32"]
    on_a_cpu = {"threads": 1, "gpu": 0, "mem_mb": 1000, "runtime": 1}
    entry["resources"] = dict.fromkeys(("cpu", "one_task", "evaluation", "finetuning"), on_a_cpu)
    three = {"three": ["mnist", "eurosat", "svhn"]}
    bare.change(lambda params: params.update(models={"vit_b32": entry}, build=["vit_b32"], benchmarks=three))
    offline = Project(bare.root, {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    run = offline.snakemake("results/vit_b32/three/table.csv", fails=True)
    bare.git("checkout", "-q", "params.yaml")
    named = set(re.findall(r"huggingface\.co/(\S+)", message(run)))
    data = {f"datasets/{name}" for name in ("tanganke/eurosat", "ufldl-stanford/svhn", "ylecun/mnist")}
    assert named == data | {"timm/vit_base_patch32_clip_224.openai/open_clip_model.safetensors"} and not run.jobs
