# examples of one task, its head, its checkpoint or the pretrained weights -> counts of right answers
rule evaluate_task:
    input:
        unpack(BRIDGE.store.inputs("task_evaluation")),
    output:
        BRIDGE.store.path("task_evaluation"),
    log:
        BRIDGE.store.log("task_evaluation"),
    benchmark:
        BRIDGE.store.log("task_evaluation", "benchmark.tsv")
    threads: BRIDGE.store.threads("task_evaluation")
    resources:
        gpu=BRIDGE.store.resource("task_evaluation", "gpu"),
        mem_mb=BRIDGE.store.resource("task_evaluation", "mem_mb"),
        runtime=BRIDGE.store.resource("task_evaluation", "runtime"),
    params:
        command=BRIDGE.store.command("task_evaluation"),
    message:
        "Evaluate one model of {wildcards.model} on its own task: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# examples of all tasks, heads, the method's vectors and masks -> counts, the choice on validation data, the test
rule evaluate:
    input:
        unpack(BRIDGE.store.inputs("evaluation")),
    output:
        BRIDGE.store.path("evaluation"),
    log:
        BRIDGE.store.log("evaluation"),
    benchmark:
        BRIDGE.store.log("evaluation", "benchmark.tsv")
    threads: BRIDGE.store.threads("evaluation")
    resources:
        gpu=BRIDGE.store.resource("evaluation", "gpu"),
        mem_mb=BRIDGE.store.resource("evaluation", "mem_mb"),
        runtime=BRIDGE.store.resource("evaluation", "runtime"),
    params:
        command=BRIDGE.store.command("evaluation"),
    message:
        "Evaluate {wildcards.model} over its grid, choose, and test: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
