# The views of a benchmark: what each shows, and its files in results/<model>/<benchmark>/.  Beside these, `tables` writes
# vs_paper.csv where the paper has numbers, and `bundle` the tensors that bundle.json names.
VIEWS = {
    # evaluations, agreements -> the tables of a benchmark
    "tables": [
        "table.csv",
        "table.md",
        "per_task.csv",
        "intervals.csv",
        "selection.json",
        "agreement.csv",
        "metrics.json",
        "provenance.json",
    ],
    # the evaluations of every seed -> means and spreads
    "seeds": ["seeds/table.csv", "seeds/table.md", "seeds/provenance.json"],
    # zero-shot evaluations
    "zeroshot": ["zeroshot.csv", "zeroshot.provenance.json"],
    # the evaluations of every method -> the long table; and of every seed
    "field": ["field.csv", "field.md", "field.tex", "field.provenance.json"],
    "field_seeds": [
        "field_seeds/table.csv",
        "field_seeds/table.md",
        "field_seeds/per_seed.csv",
        "field_seeds/provenance.json",
    ],
    # the merge of all other tasks, evaluated on each task
    "held_out": ["held_out.csv", "held_out.md", "held_out.provenance.json"],
    # masks at the chosen lambdas -> densities and overlaps
    "masks": ["masks/density.csv", "masks/tensors.csv", "masks/overlap.csv", "masks/provenance.json"],
    # evaluations at every threshold k
    "thresholds": ["thresholds/thresholds.csv", "thresholds/provenance.json"],
    # evaluations with and without disjoint task vectors
    "controlled": ["controlled/controlled.csv", "controlled/provenance.json"],
    # the evaluation of every subset -> accuracy by order and number of tasks
    "subsets": ["subsets/accuracy.csv", "subsets/orders.json", "subsets/provenance.json"],
    # task vectors -> one block of a matrix, from vectors to masks
    "illustration": ["illustration/weights.csv", "illustration/provenance.json"],
    # a bundle of the store -> its files
    "bundle": ["bundle/bundle.json", "bundle/README.md", "bundle/provenance.json"],
}


REPORTED = ("table.csv", "field.csv", "held_out.csv")


for _view, _files in VIEWS.items():

    rule:
        name:
            _view
        input:
            artifacts=BRIDGE.view(_view, checkpoints).inputs,
            stale=BRIDGE.view(_view).stale,
        output:
            [update(f"results/{{model}}/{{benchmark}}/{file}") for file in _files if file not in REPORTED],
            [
                report(
                    update(f"results/{{model}}/{{benchmark}}/{file}"),
                    category="Result files",
                    subcategory="{model}",
                    labels={"benchmark": "{benchmark}", "file": file},
                )
                for file in _files
                if file in REPORTED
            ],
        log:
            f"logs/{{model}}/{_view}/{{benchmark}}.log",
        threads: 1
        resources:
            **BRIDGE.arrays,
        params:
            job=BRIDGE.view(_view).job,
        shell:
            "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} > {log} 2>&1"
