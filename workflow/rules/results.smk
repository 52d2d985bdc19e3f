# The views of a benchmark, each with its files in results/<model>/<benchmark>/ as src/tallmasks/plan/views.py names them.
# Beside these, `tables` writes vs_paper.csv where the paper has numbers, and `bundle` the tensors that bundle.json names.
from tallmasks.plan.views import VIEWS

REPORTED = ("table.csv", "field.csv", "held_out.csv")


for _view, _folder, _files in [
    (name, f"{name}/" if view.own_folder else "", (*view.files, view.provenance)) for name, view in VIEWS.items()
]:

    rule:
        name:
            _view
        input:
            artifacts=BRIDGE.view(_view, checkpoints).inputs,
            stale=BRIDGE.view(_view).stale,
        output:
            [
                update(f"results/{{model}}/{{benchmark}}/{_folder}{file}")
                for file in _files
                if _folder + file not in REPORTED
            ],
            [
                report(
                    update(f"results/{{model}}/{{benchmark}}/{_folder}{file}"),
                    category="Result files",
                    subcategory="{model}",
                    labels={"benchmark": "{benchmark}", "file": file},
                )
                for file in _files
                if _folder + file in REPORTED
            ],
        log:
            f"logs/{{model}}/{_view}/{{benchmark}}.log",
        threads: 1
        resources:
            **BRIDGE.arrays,
        params:
            job=BRIDGE.view(_view).job,
        shell:
            "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"
