rule head:
    input:
        unpack(GLUE.inputs("head")),
    output:
        "store/{model}/heads/{name}.safetensors",
    log:
        "logs/{model}/head/{name}.log",
    benchmark:
        "logs/{model}/head/{name}.benchmark.tsv"
    threads: GLUE.threads("evaluation")
    resources:
        gpu=GLUE.resource("evaluation", "gpu"),
        mem_mb=GLUE.resource("evaluation", "mem_mb"),
        runtime=GLUE.resource("evaluation", "runtime"),
    params:
        command=GLUE.job("head", "head"),
    message:
        "Build the zero-shot head {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


rule finetune:
    input:
        unpack(GLUE.inputs("checkpoint")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    log:
        "logs/{model}/checkpoint/{name}.log",
    benchmark:
        "logs/{model}/checkpoint/{name}.benchmark.tsv"
    threads: GLUE.threads("finetuning")
    resources:
        gpu=GLUE.resource("finetuning", "gpu"),
        mem_mb=GLUE.resource("finetuning", "mem_mb"),
        runtime=GLUE.resource("finetuning", "runtime"),
    params:
        command=GLUE.job("checkpoint", "finetune"),
    message:
        "Fine-tune {wildcards.model} on {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


rule task_vector:
    input:
        unpack(GLUE.inputs("task_vector")),
    output:
        "store/{model}/derived/task_vectors/{name}.safetensors",
    log:
        "logs/{model}/task_vector/{name}.log",
    benchmark:
        "logs/{model}/task_vector/{name}.benchmark.tsv"
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("task_vector", "task_vector"),
    message:
        "Subtract the pretrained weights: task vector {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"
