# The views of a benchmark, declared in src/reproduction/plan/views.py.  `tables` also writes vs_paper.csv if the paper has
# numbers for the benchmark, and `bundle` the tensor files listed in bundle.json.
from reproduction.plan.views import VIEWS

REPORTED = ("{benchmark}/table.csv", "{benchmark}/field.csv", "{benchmark}/held_out.csv")


for _view, _stage in VIEWS.items():
    _files = [file.replace("{name}", "{benchmark}") for file in _stage.files]

    rule:
        name:
            _view
        input:
            artifacts=BRIDGE.results(_view).inputs_but(),
            outdated=BRIDGE.results(_view).outdated,
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
            **CPU,
        params:
            job=BRIDGE.results(_view).job(),
        shell:
            "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"
