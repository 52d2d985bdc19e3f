rule evaluate_task:
    input:
        unpack(GLUE.inputs("task_evaluation")),
    output:
        "store/{model}/derived/task_evaluations/{name}.json",
    log:
        "logs/{model}/task_evaluation/{name}.log",
    benchmark:
        "logs/{model}/task_evaluation/{name}.benchmark.tsv"
    threads: GLUE.threads("evaluation")
    resources:
        gpu=GLUE.resource("evaluation", "gpu"),
        mem_mb=GLUE.resource("evaluation", "mem_mb"),
        runtime=GLUE.resource("evaluation", "runtime"),
    params:
        command=GLUE.job("task_evaluation", "evaluate_task"),
    message:
        "Evaluate one model of {wildcards.model} on its own task: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


rule evaluate:
    input:
        unpack(GLUE.inputs("evaluation")),
    output:
        "store/{model}/derived/evaluations/{name}.json",
    log:
        "logs/{model}/evaluation/{name}.log",
    benchmark:
        "logs/{model}/evaluation/{name}.benchmark.tsv"
    threads: GLUE.threads("evaluation")
    resources:
        gpu=GLUE.resource("evaluation", "gpu"),
        mem_mb=GLUE.resource("evaluation", "mem_mb"),
        runtime=GLUE.resource("evaluation", "runtime"),
    params:
        command=GLUE.job("evaluation", "evaluate"),
    message:
        "Evaluate {wildcards.model} over its grid, choose, and test: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
