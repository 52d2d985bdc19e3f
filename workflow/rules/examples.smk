rule examples:
    input:
        unpack(GLUE.inputs("examples")),
    output:
        "store/data/{model}/examples/{name}.safetensors",
    log:
        "logs/{model}/examples/{name}.log",
    benchmark:
        "logs/{model}/examples/{name}.benchmark.tsv"
    threads: GLUE.threads("arrays")
    resources:
        gpu=GLUE.resource("arrays", "gpu"),
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.job("examples", "examples"),
    message:
        "Prepare the examples {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"
