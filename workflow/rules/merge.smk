rule merge:
    input:
        unpack(GLUE.inputs("multi_task_vector")),
    output:
        "store/{model}/derived/multi_task_vectors/{name}.safetensors",
    log:
        "logs/{model}/multi_task_vector/{name}.log",
    benchmark:
        "logs/{model}/multi_task_vector/{name}.benchmark.tsv"
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("multi_task_vector", "merge"),
    message:
        "Merge the task vectors of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
