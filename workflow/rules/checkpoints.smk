# pretrained weights, class names, prompts -> the zero-shot head of one task
rule head:
    input:
        unpack(BRIDGE.store.inputs("head")),
    output:
        BRIDGE.store.path("head"),
    log:
        BRIDGE.store.log("head"),
    benchmark:
        BRIDGE.store.log("head", "benchmark.tsv")
    threads: BRIDGE.store.threads("head")
    resources:
        gpu=BRIDGE.store.resource("head", "gpu"),
        mem_mb=BRIDGE.store.resource("head", "mem_mb"),
        runtime=BRIDGE.store.resource("head", "runtime"),
    params:
        command=BRIDGE.store.command("head"),
    message:
        "Build the zero-shot head {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


# the hub's or a local file of weights -> the project's own format
rule pretrained:
    input:
        unpack(BRIDGE.store.inputs("pretrained")),
    output:
        BRIDGE.store.path("pretrained"),
    log:
        BRIDGE.store.log("pretrained"),
    benchmark:
        BRIDGE.store.log("pretrained", "benchmark.tsv")
    wildcard_constraints:
        name=BRIDGE.store.names("pretrained"),
    threads: BRIDGE.store.threads("pretrained")
    resources:
        gpu=BRIDGE.store.resource("pretrained", "gpu"),
        mem_mb=BRIDGE.store.resource("pretrained", "mem_mb"),
        runtime=BRIDGE.store.resource("pretrained", "runtime"),
    params:
        command=BRIDGE.store.command("pretrained"),
    message:
        "Fetch and convert the pretrained weights of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


# somebody else's checkpoint, pretrained weights -> the trainable tensors
rule import_checkpoint:
    input:
        unpack(BRIDGE.store.inputs("imported")),
    output:
        BRIDGE.store.path("imported"),
    log:
        BRIDGE.store.log("imported"),
    benchmark:
        BRIDGE.store.log("imported", "benchmark.tsv")
    wildcard_constraints:
        name=BRIDGE.store.names("imported"),
    threads: BRIDGE.store.threads("imported")
    resources:
        gpu=BRIDGE.store.resource("imported", "gpu"),
        mem_mb=BRIDGE.store.resource("imported", "mem_mb"),
        runtime=BRIDGE.store.resource("imported", "runtime"),
    params:
        command=BRIDGE.store.command("imported"),
    message:
        "Import the checkpoint {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


# training examples, head, pretrained weights -> the trainable tensors after fine-tuning
rule finetune:
    input:
        unpack(BRIDGE.store.inputs("checkpoint")),
    output:
        BRIDGE.store.path("checkpoint"),
    log:
        log=BRIDGE.store.log("checkpoint"),
        loss=BRIDGE.store.log("checkpoint", "loss.csv"),
    benchmark:
        BRIDGE.store.log("checkpoint", "benchmark.tsv")
    wildcard_constraints:
        name=BRIDGE.store.names("checkpoint"),
    threads: BRIDGE.store.threads("checkpoint")
    resources:
        gpu=BRIDGE.store.resource("checkpoint", "gpu"),
        mem_mb=BRIDGE.store.resource("checkpoint", "mem_mb"),
        runtime=BRIDGE.store.resource("checkpoint", "runtime"),
    params:
        command=BRIDGE.store.command("checkpoint", loss=BRIDGE.store.log("checkpoint", "loss.csv")),
    message:
        "Fine-tune {wildcards.model} on {wildcards.name}"
    shell:
        "{params.command} > {log.log} 2>&1"


# checkpoint, pretrained weights -> their difference, with the thresholds of the kept fractions
rule task_vector:
    input:
        unpack(BRIDGE.store.inputs("task_vector")),
    output:
        BRIDGE.store.path("task_vector"),
    log:
        BRIDGE.store.log("task_vector"),
    benchmark:
        BRIDGE.store.log("task_vector", "benchmark.tsv")
    threads: BRIDGE.store.threads("task_vector")
    resources:
        gpu=BRIDGE.store.resource("task_vector", "gpu"),
        mem_mb=BRIDGE.store.resource("task_vector", "mem_mb"),
        runtime=BRIDGE.store.resource("task_vector", "runtime"),
    params:
        command=BRIDGE.store.command("task_vector"),
    message:
        "Subtract the pretrained weights: task vector {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"
