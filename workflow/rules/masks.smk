rule mask:
    input:
        unpack(GLUE.inputs("mask_bundle")),
    output:
        "store/{model}/derived/mask_bundles/{name}.safetensors",
    log:
        "logs/{model}/mask_bundle/{name}.log",
    benchmark:
        "logs/{model}/mask_bundle/{name}.benchmark.tsv"
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("mask_bundle", "mask"),
    message:
        "Build the masks of {wildcards.model} for the whole lambda grid: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


rule consensus:
    input:
        unpack(GLUE.inputs("agreement")),
    output:
        "store/{model}/derived/agreements/{name}.safetensors",
    log:
        "logs/{model}/agreement/{name}.log",
    benchmark:
        "logs/{model}/agreement/{name}.benchmark.tsv"
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("agreement", "consensus"),
    message:
        "Count the agreement of the selected masks of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
