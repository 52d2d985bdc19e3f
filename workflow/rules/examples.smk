# a seed, the hub or a local folder -> images and labels of one split of one task
rule examples:
    input:
        unpack(BRIDGE.store.inputs("examples")),
    output:
        BRIDGE.store.path("examples"),
    log:
        BRIDGE.store.log("examples"),
    benchmark:
        BRIDGE.store.log("examples", "benchmark.tsv")
    threads: BRIDGE.store.threads("examples")
    resources:
        gpu=BRIDGE.store.resource("examples", "gpu"),
        mem_mb=BRIDGE.store.resource("examples", "mem_mb"),
        runtime=BRIDGE.store.resource("examples", "runtime"),
    params:
        command=BRIDGE.store.command("examples"),
    message:
        "Prepare the examples {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"
