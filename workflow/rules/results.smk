# The other rules that write into results/<model>/<benchmark>/ `use` the first one and say what differs.


# evaluations, agreements -> the tables of a benchmark
rule results:
    input:
        unpack(BRIDGE.views.inputs("benchmark")),
    output:
        table=report(
            update("results/{model}/{benchmark}/table.csv"),
            category="Result files",
            subcategory="{model}",
            labels={"benchmark": "{benchmark}", "file": "table.csv"},
        ),
        table_for_people=update("results/{model}/{benchmark}/table.md"),
        per_task=update("results/{model}/{benchmark}/per_task.csv"),
        intervals=update("results/{model}/{benchmark}/intervals.csv"),
        selection=update("results/{model}/{benchmark}/selection.json"),
        agreement=update("results/{model}/{benchmark}/agreement.csv"),
        metrics=update("results/{model}/{benchmark}/metrics.json"),
        provenance=update("results/{model}/{benchmark}/provenance.json"),
    log:
        "logs/{model}/<view>/{benchmark}.log",
    benchmark:
        "logs/{model}/<view>/{benchmark}.benchmark.tsv"
    pathvars:
        view="benchmark",
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("mem_mb"),
        runtime=BRIDGE.store.resource("runtime"),
    params:
        command=BRIDGE.views.command,
    message:
        "Write the tables of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log[0]} 2>&1"


# the evaluations of every seed -> means and spreads
use rule results as seeds with:
    input:
        unpack(BRIDGE.views.inputs("seeds")),
    output:
        table=update("results/{model}/{benchmark}/seeds/table.csv"),
        table_for_people=update("results/{model}/{benchmark}/seeds/table.md"),
        provenance=update("results/{model}/{benchmark}/seeds/provenance.json"),
    pathvars:
        view="seeds",
    message:
        "Write the spread over fine-tuning seeds of {wildcards.model} on {wildcards.benchmark}"


# zero-shot evaluations -> zeroshot.csv
use rule results as zeroshot with:
    input:
        unpack(BRIDGE.views.inputs("zeroshot")),
    output:
        table="results/{model}/{benchmark}/zeroshot.csv",
        provenance="results/{model}/{benchmark}/zeroshot.provenance.json",
    pathvars:
        view="zeroshot",
    message:
        "Write the zero-shot accuracies of {wildcards.model} on {wildcards.benchmark}"


# the evaluations of every method -> the long table
use rule results as field with:
    input:
        unpack(BRIDGE.views.inputs("field")),
    output:
        table=report(
            update("results/{model}/{benchmark}/field.csv"),
            category="Result files",
            subcategory="{model}",
            labels={"benchmark": "{benchmark}", "file": "field.csv"},
        ),
        table_for_people=update("results/{model}/{benchmark}/field.md"),
        table_for_papers=update("results/{model}/{benchmark}/field.tex"),
        provenance=update("results/{model}/{benchmark}/field.provenance.json"),
    pathvars:
        view="field",
    message:
        "Write the table of every method of {wildcards.model} on {wildcards.benchmark}"


# the merge of all other tasks, evaluated on each task -> held_out.csv
use rule results as held_out with:
    input:
        unpack(BRIDGE.views.inputs("held_out")),
    output:
        table=report(
            update("results/{model}/{benchmark}/held_out.csv"),
            category="Result files",
            subcategory="{model}",
            labels={"benchmark": "{benchmark}", "file": "held_out.csv"},
        ),
        table_for_people=update("results/{model}/{benchmark}/held_out.md"),
        provenance=update("results/{model}/{benchmark}/held_out.provenance.json"),
    pathvars:
        view="held_out",
    message:
        "Write the accuracies of {wildcards.model} on each task of {wildcards.benchmark} left out of the merge"


# the evaluations of every method and seed -> means and spreads
use rule results as field_seeds with:
    input:
        unpack(BRIDGE.views.inputs("field_seeds")),
    output:
        table=update("results/{model}/{benchmark}/field_seeds/table.csv"),
        table_for_people=update("results/{model}/{benchmark}/field_seeds/table.md"),
        per_seed=update("results/{model}/{benchmark}/field_seeds/per_seed.csv"),
        provenance=update("results/{model}/{benchmark}/field_seeds/provenance.json"),
    pathvars:
        view="field_seeds",
    message:
        "Write the spread over fine-tuning seeds of every method of {wildcards.model} on {wildcards.benchmark}"
