# task vectors, and what some merges have to know of the tasks' data -> multi-task vector
rule merge:
    input:
        unpack(BRIDGE.store.inputs("multi_task_vector")),
    output:
        BRIDGE.store.path("multi_task_vector"),
    log:
        BRIDGE.store.log("multi_task_vector"),
    benchmark:
        BRIDGE.store.log("multi_task_vector", "benchmark.tsv")
    threads: BRIDGE.store.threads("multi_task_vector")
    resources:
        gpu=BRIDGE.store.resource("multi_task_vector", "gpu"),
        mem_mb=BRIDGE.store.resource("multi_task_vector", "mem_mb"),
        runtime=BRIDGE.store.resource("multi_task_vector", "runtime"),
    params:
        command=BRIDGE.store.command("multi_task_vector"),
    message:
        "Merge the task vectors of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
