# inputs of an evaluation of consensus merging -> evaluations at all thresholds k (figure 6)
use rule artifact as evaluate_thresholds with:
    input:
        validation=BRIDGE.artifact.input("validation"),
        test=BRIDGE.artifact.input("test"),
        heads=BRIDGE.artifact.input("heads"),
        pretrained=BRIDGE.artifact.input("pretrained"),
        zero_shot=BRIDGE.artifact.input("zero_shot"),
        fine_tuned=BRIDGE.artifact.input("fine_tuned"),
        multi_task_vector=BRIDGE.artifact.input("multi_task_vector"),
        agreement=BRIDGE.artifact.input("agreement"),
    output:
        "store/{model}/derived/evaluate_thresholds/{name}.json",
    log:
        "logs/{model}/evaluate_thresholds/{name}.log",


# zero-shot accuracies -> task orders of figure 5; a checkpoint, because the orders decide which subsets are evaluated
checkpoint task_orders:
    input:
        zeroshot=BRIDGE.artifact.input("zeroshot"),
        orders_missing=BRIDGE.artifact.orders_missing,
    output:
        "store/{model}/derived/task_orders/{name}.json",
    log:
        "logs/{model}/task_orders/{name}.log",
    threads: 1
    resources:
        **ARRAYS,
    params:
        job=BRIDGE.artifact.job(),
    shell:
        "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"


# task vectors and examples of a subset -> evaluations of several methods (figure 5)
use rule artifact as evaluate_subset with:
    input:
        validation=BRIDGE.artifact.input("validation"),
        test=BRIDGE.artifact.input("test"),
        heads=BRIDGE.artifact.input("heads"),
        pretrained=BRIDGE.artifact.input("pretrained"),
        fine_tuned=BRIDGE.artifact.input("fine_tuned"),
        task_vectors=BRIDGE.artifact.input("task_vectors"),
    output:
        "store/{model}/derived/evaluate_subset/{name}.json",
    log:
        "logs/{model}/evaluate_subset/{name}.log",
