# What is known of a task's data beside its checkpoint; made for the merges that ask for it.
# checkpoint, training examples -> second moments of what enters each linear layer
rule grams:
    input:
        unpack(BRIDGE.store.inputs("grams")),
    output:
        BRIDGE.store.path("grams"),
    log:
        BRIDGE.store.log("grams"),
    benchmark:
        BRIDGE.store.log("grams", "benchmark.tsv")
    threads: BRIDGE.store.threads("grams")
    resources:
        gpu=BRIDGE.store.resource("grams", "gpu"),
        mem_mb=BRIDGE.store.resource("grams", "mem_mb"),
        runtime=BRIDGE.store.resource("grams", "runtime"),
    params:
        command=BRIDGE.store.command("grams"),
    message:
        "Compute the second moments of layer inputs of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# checkpoint, training examples -> squared gradients of log-probabilities
rule fisher:
    input:
        unpack(BRIDGE.store.inputs("fisher")),
    output:
        BRIDGE.store.path("fisher"),
    log:
        BRIDGE.store.log("fisher"),
    benchmark:
        BRIDGE.store.log("fisher", "benchmark.tsv")
    threads: BRIDGE.store.threads("fisher")
    resources:
        gpu=BRIDGE.store.resource("fisher", "gpu"),
        mem_mb=BRIDGE.store.resource("fisher", "mem_mb"),
        runtime=BRIDGE.store.resource("fisher", "runtime"),
    params:
        command=BRIDGE.store.command("fisher"),
    message:
        "Compute the squared gradients of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
