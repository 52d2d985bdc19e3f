# Behind figures 5 and 6: many merged models in one job, made in memory.
# as an evaluation of consensus merging -> one at every threshold k (figure 6)
rule evaluate_thresholds:
    input:
        unpack(BRIDGE.store.inputs("threshold_evaluation")),
    output:
        BRIDGE.store.path("threshold_evaluation"),
    log:
        BRIDGE.store.log("threshold_evaluation"),
    benchmark:
        BRIDGE.store.log("threshold_evaluation", "benchmark.tsv")
    threads: BRIDGE.store.threads("threshold_evaluation")
    resources:
        gpu=BRIDGE.store.resource("threshold_evaluation", "gpu"),
        mem_mb=BRIDGE.store.resource("threshold_evaluation", "mem_mb"),
        runtime=BRIDGE.store.resource("threshold_evaluation", "runtime"),
    params:
        command=BRIDGE.store.command("threshold_evaluation"),
    message:
        "Evaluate consensus merging of {wildcards.model} for every threshold k: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# A checkpoint, since which subsets there are follows from zero-shot accuracies.
# zero-shot accuracies -> the tasks in figure 5's orders
checkpoint task_orders:
    input:
        unpack(BRIDGE.store.inputs("task_orders")),
    output:
        BRIDGE.store.path("task_orders"),
    log:
        BRIDGE.store.log("task_orders"),
    benchmark:
        BRIDGE.store.log("task_orders", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("task_orders", "mem_mb"),
        runtime=BRIDGE.store.resource("task_orders", "runtime"),
    params:
        command=BRIDGE.store.command("task_orders"),
    message:
        "Order the tasks of {wildcards.model} by zero-shot accuracy and by name: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# task vectors and examples of a subset -> evaluations of several methods (figure 5)
rule evaluate_subset:
    input:
        unpack(BRIDGE.store.inputs("subset_evaluation")),
    output:
        BRIDGE.store.path("subset_evaluation"),
    log:
        BRIDGE.store.log("subset_evaluation"),
    benchmark:
        BRIDGE.store.log("subset_evaluation", "benchmark.tsv")
    threads: BRIDGE.store.threads("subset_evaluation")
    resources:
        gpu=BRIDGE.store.resource("subset_evaluation", "gpu"),
        mem_mb=BRIDGE.store.resource("subset_evaluation", "mem_mb"),
        runtime=BRIDGE.store.resource("subset_evaluation", "runtime"),
    params:
        command=BRIDGE.store.command("subset_evaluation"),
    message:
        "Evaluate a subset of the tasks of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
