rule results:
    input:
        unpack(GLUE.result_inputs("benchmark")),
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
        "logs/{model}/results/{benchmark}.log",
    benchmark:
        "logs/{model}/results/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("benchmark", "results"),
    message:
        "Write the tables of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


rule seeds:
    input:
        unpack(GLUE.result_inputs("seeds")),
    output:
        table=update("results/{model}/{benchmark}/seeds/table.csv"),
        table_for_people=update("results/{model}/{benchmark}/seeds/table.md"),
        provenance=update("results/{model}/{benchmark}/seeds/provenance.json"),
    log:
        "logs/{model}/seeds/{benchmark}.log",
    benchmark:
        "logs/{model}/seeds/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("seeds", "seeds"),
    message:
        "Write the spread over fine-tuning seeds of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


rule zeroshot:
    input:
        unpack(GLUE.result_inputs("zeroshot")),
    output:
        table="results/{model}/{benchmark}/zeroshot.csv",
        provenance="results/{model}/{benchmark}/zeroshot.provenance.json",
    log:
        "logs/{model}/zeroshot/{benchmark}.log",
    benchmark:
        "logs/{model}/zeroshot/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("zeroshot", "zeroshot_table"),
    message:
        "Write the zero-shot accuracies of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"
