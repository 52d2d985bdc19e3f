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


rule pretrained:
    input:
        unpack(GLUE.inputs("pretrained")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    log:
        "logs/{model}/pretrained/{name}.log",
    benchmark:
        "logs/{model}/pretrained/{name}.benchmark.tsv"
    wildcard_constraints:
        name="pretrained-[0-9a-f]{12}",
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("pretrained", "pretrained"),
    message:
        "Fetch and convert the pretrained weights of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


rule import_checkpoint:
    input:
        unpack(GLUE.inputs("imported")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    log:
        "logs/{model}/imported/{name}.log",
    benchmark:
        "logs/{model}/imported/{name}.benchmark.tsv"
    wildcard_constraints:
        name="imported-.+-[0-9a-f]{12}",
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("imported", "import_checkpoint"),
    message:
        "Import the checkpoint {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


rule finetune:
    input:
        unpack(GLUE.inputs("checkpoint")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    log:
        log="logs/{model}/checkpoint/{name}.log",
        loss="logs/{model}/checkpoint/{name}.loss.csv",
    benchmark:
        "logs/{model}/checkpoint/{name}.benchmark.tsv"
    wildcard_constraints:
        name="(?!pretrained-|imported-)[^/]+-[0-9a-f]{12}",
    threads: GLUE.threads("finetuning")
    resources:
        gpu=GLUE.resource("finetuning", "gpu"),
        mem_mb=GLUE.resource("finetuning", "mem_mb"),
        runtime=GLUE.resource("finetuning", "runtime"),
    params:
        command=GLUE.job("checkpoint", "finetune", loss="logs/{model}/checkpoint/{name}.loss.csv"),
    message:
        "Fine-tune {wildcards.model} on {wildcards.name}"
    shell:
        "{params.command} > {log.log} 2>&1"


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
