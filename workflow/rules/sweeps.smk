# Behind figures 5 and 6: many merged models in one job, made in memory.
# as an evaluation of consensus merging -> one at every threshold k (figure 6)
use rule examples as evaluate_thresholds with:
    input:
        unpack(BRIDGE.store.inputs("threshold_evaluation")),
    output:
        "store/{model}/derived/threshold_evaluations/{name}.json",
    pathvars:
        stage="threshold_evaluation",
    message:
        "Evaluate consensus merging of {wildcards.model} for every threshold k: {wildcards.name}"


# A checkpoint, since which subsets there are follows from zero-shot accuracies.
# zero-shot accuracies -> the tasks in figure 5's orders
checkpoint task_orders:
    input:
        unpack(BRIDGE.store.inputs("task_orders")),
    output:
        "store/{model}/derived/task_orders/{name}.json",
    log:
        "logs/{model}/task_orders/{name}.log",
    benchmark:
        "logs/{model}/task_orders/{name}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("mem_mb"),
        runtime=BRIDGE.store.resource("runtime"),
    params:
        command=BRIDGE.store.command(),
    message:
        "Order the tasks of {wildcards.model} by zero-shot accuracy and by name: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# task vectors and examples of a subset -> evaluations of several methods (figure 5)
use rule examples as evaluate_subset with:
    input:
        unpack(BRIDGE.store.inputs("subset_evaluation")),
    output:
        "store/{model}/derived/subset_evaluations/{name}.json",
    pathvars:
        stage="subset_evaluation",
    message:
        "Evaluate a subset of the tasks of {wildcards.model}: {wildcards.name}"
