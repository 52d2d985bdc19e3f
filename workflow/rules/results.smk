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
        BRIDGE.views.log("benchmark"),
    benchmark:
        BRIDGE.views.log("benchmark", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("benchmark"),
    message:
        "Write the tables of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# the evaluations of every seed -> means and spreads
rule seeds:
    input:
        unpack(BRIDGE.views.inputs("seeds")),
    output:
        table=update("results/{model}/{benchmark}/seeds/table.csv"),
        table_for_people=update("results/{model}/{benchmark}/seeds/table.md"),
        provenance=update("results/{model}/{benchmark}/seeds/provenance.json"),
    log:
        BRIDGE.views.log("seeds"),
    benchmark:
        BRIDGE.views.log("seeds", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("seeds"),
    message:
        "Write the spread over fine-tuning seeds of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# zero-shot evaluations -> zeroshot.csv
rule zeroshot:
    input:
        unpack(BRIDGE.views.inputs("zeroshot")),
    output:
        table="results/{model}/{benchmark}/zeroshot.csv",
        provenance="results/{model}/{benchmark}/zeroshot.provenance.json",
    log:
        BRIDGE.views.log("zeroshot"),
    benchmark:
        BRIDGE.views.log("zeroshot", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("zeroshot"),
    message:
        "Write the zero-shot accuracies of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# the evaluations of every method -> the long table
rule field:
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
    log:
        BRIDGE.views.log("field"),
    benchmark:
        BRIDGE.views.log("field", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("field"),
    message:
        "Write the table of every method of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# the evaluations of every method and seed -> means and spreads
rule field_seeds:
    input:
        unpack(BRIDGE.views.inputs("field_seeds")),
    output:
        table=update("results/{model}/{benchmark}/field_seeds/table.csv"),
        table_for_people=update("results/{model}/{benchmark}/field_seeds/table.md"),
        per_seed=update("results/{model}/{benchmark}/field_seeds/per_seed.csv"),
        provenance=update("results/{model}/{benchmark}/field_seeds/provenance.json"),
    log:
        BRIDGE.views.log("field_seeds"),
    benchmark:
        BRIDGE.views.log("field_seeds", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("field_seeds"),
    message:
        "Write the spread over fine-tuning seeds of every method of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"
