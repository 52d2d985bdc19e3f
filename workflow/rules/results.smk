# The views of a benchmark, each with its files in results/<model>/<benchmark>/ as src/tallmasks/plan/views.py names them.
# Beside these, `tables` writes vs_paper.csv where the paper has numbers, and `bundle` the tensors that bundle.json names.
from tallmasks.plan.views import VIEWS

REPORTED = ("/{benchmark}/table.csv", "/{benchmark}/field.csv", "/{benchmark}/held_out.csv")


for _view, _files in [
    (name, [file.replace("{name}", "{benchmark}") for file in view.files]) for name, view in VIEWS.items()
]:

    rule:
        name:
            _view
        input:
            artifacts=BRIDGE.view(_view, checkpoints).inputs_but(),
            outdated=BRIDGE.view(_view).outdated,
        output:
            [update(file) for file in _files if not file.endswith(REPORTED)],
            [
                report(
                    update(file),
                    category="Result files",
                    subcategory="{model}",
                    labels={"benchmark": "{benchmark}", "file": Path(file).name},
                )
                for file in _files
                if file.endswith(REPORTED)
            ],
        log:
            f"logs/{{model}}/{_view}/{{benchmark}}.log",
        threads: 1
        resources:
            **ARRAYS,
        params:
            job=BRIDGE.view(_view).job(),
        shell:
            "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"
