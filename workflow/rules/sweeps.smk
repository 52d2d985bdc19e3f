# Behind figures 5 and 6: many merged models in one job, made in memory.


# as an evaluation of consensus merging -> one at every threshold k (figure 6)
use rule artifact as evaluate_thresholds with:
    input:
        validation=BRIDGE.store.input("validation"),
        test=BRIDGE.store.input("test"),
        heads=BRIDGE.store.input("heads"),
        pretrained=BRIDGE.store.input("pretrained"),
        fine_tuned=BRIDGE.store.input("fine_tuned"),
        multi_task_vector=BRIDGE.store.input("multi_task_vector"),
        agreement=BRIDGE.store.input("agreement"),
        stale=BRIDGE.store.stale,
    output:
        "store/{model}/derived/evaluate_thresholds/{name}.json",
    log:
        "logs/{model}/evaluate_thresholds/{name}.log",


# A checkpoint, since which subsets there are follows from zero-shot accuracies.
# zero-shot accuracies -> the tasks in figure 5's orders
checkpoint task_orders:
    input:
        zeroshot=BRIDGE.store.input("zeroshot"),
        lost=BRIDGE.store.lost,
        stale=BRIDGE.store.stale,
    output:
        "store/{model}/derived/task_orders/{name}.json",
    log:
        "logs/{model}/task_orders/{name}.log",
    threads: 1
    resources:
        **BRIDGE.arrays,
    params:
        job=BRIDGE.store.job(),
    shell:
        "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"


# task vectors and examples of a subset -> evaluations of several methods (figure 5)
use rule artifact as evaluate_subset with:
    input:
        validation=BRIDGE.store.input("validation"),
        test=BRIDGE.store.input("test"),
        heads=BRIDGE.store.input("heads"),
        pretrained=BRIDGE.store.input("pretrained"),
        fine_tuned=BRIDGE.store.input("fine_tuned"),
        task_vectors=BRIDGE.store.input("task_vectors"),
        stale=BRIDGE.store.stale,
    output:
        "store/{model}/derived/evaluate_subset/{name}.json",
    log:
        "logs/{model}/evaluate_subset/{name}.log",
