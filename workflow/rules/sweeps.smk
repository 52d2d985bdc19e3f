# Behind figures 5 and 6: many merged models in one job, made in memory.
rule evaluate_thresholds:
    input:
        unpack(GLUE.inputs("threshold_evaluation")),
    output:
        "store/{model}/derived/threshold_evaluations/{name}.json",
    log:
        "logs/{model}/threshold_evaluation/{name}.log",
    benchmark:
        "logs/{model}/threshold_evaluation/{name}.benchmark.tsv"
    threads: GLUE.threads("evaluation")
    resources:
        gpu=GLUE.resource("evaluation", "gpu"),
        mem_mb=GLUE.resource("evaluation", "mem_mb"),
        runtime=GLUE.resource("evaluation", "runtime"),
    params:
        command=GLUE.job("threshold_evaluation", "evaluate_thresholds"),
    message:
        "Evaluate consensus merging of {wildcards.model} for every threshold k: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# A checkpoint, since which subsets there are follows from zero-shot accuracies.
checkpoint task_orders:
    input:
        unpack(GLUE.inputs("task_orders")),
    output:
        "store/{model}/derived/task_orders/{name}.json",
    log:
        "logs/{model}/task_orders/{name}.log",
    benchmark:
        "logs/{model}/task_orders/{name}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("task_orders", "task_orders"),
    message:
        "Order the tasks of {wildcards.model} by zero-shot accuracy and by name: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


rule evaluate_subset:
    input:
        unpack(GLUE.inputs("subset_evaluation")),
    output:
        "store/{model}/derived/subset_evaluations/{name}.json",
    log:
        "logs/{model}/subset_evaluation/{name}.log",
    benchmark:
        "logs/{model}/subset_evaluation/{name}.benchmark.tsv"
    threads: GLUE.threads("evaluation")
    resources:
        gpu=GLUE.resource("evaluation", "gpu"),
        mem_mb=GLUE.resource("evaluation", "mem_mb"),
        runtime=GLUE.resource("evaluation", "runtime"),
    params:
        command=GLUE.job("subset_evaluation", "evaluate_subset"),
    message:
        "Evaluate a subset of the tasks of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
