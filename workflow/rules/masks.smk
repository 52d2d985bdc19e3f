# task vectors, multi-task vector -> masks of every task for every lambda
rule mask:
    input:
        unpack(BRIDGE.store.inputs("mask_bundle")),
    output:
        BRIDGE.store.path("mask_bundle"),
    log:
        BRIDGE.store.log("mask_bundle"),
    benchmark:
        BRIDGE.store.log("mask_bundle", "benchmark.tsv")
    threads: BRIDGE.store.threads("mask_bundle")
    resources:
        gpu=BRIDGE.store.resource("mask_bundle", "gpu"),
        mem_mb=BRIDGE.store.resource("mask_bundle", "mem_mb"),
        runtime=BRIDGE.store.resource("mask_bundle", "runtime"),
    params:
        command=BRIDGE.store.command("mask_bundle"),
    message:
        "Build the masks of {wildcards.model} for the whole lambda grid: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# multi-task vector, masks, the evaluation that selects them -> how many tasks' masks hold each weight
rule consensus:
    input:
        unpack(BRIDGE.store.inputs("agreement")),
    output:
        BRIDGE.store.path("agreement"),
    log:
        BRIDGE.store.log("agreement"),
    benchmark:
        BRIDGE.store.log("agreement", "benchmark.tsv")
    threads: BRIDGE.store.threads("agreement")
    resources:
        gpu=BRIDGE.store.resource("agreement", "gpu"),
        mem_mb=BRIDGE.store.resource("agreement", "mem_mb"),
        runtime=BRIDGE.store.resource("agreement", "runtime"),
    params:
        command=BRIDGE.store.command("agreement"),
    message:
        "Count the agreement of the selected masks of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
