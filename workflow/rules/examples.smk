# Of every rule in these files: what goes in -> what comes out, then the rule.  What a stage of the store reads, and what
# runs, is declared in src/tallmasks/plan/chain.py, of a results folder in plan/views.py; threads, GPUs, memory and time
# stand under `resources` in params.yaml.  The other rules of the store `use` this one and say what differs.


# a seed, the hub or a local folder -> images and labels of one split of one task
rule examples:
    input:
        unpack(BRIDGE.store.inputs("examples")),
    output:
        "store/data/{model}/examples/{name}.safetensors",
    log:
        "logs/{model}/<stage>/{name}.log",
    benchmark:
        "logs/{model}/<stage>/{name}.benchmark.tsv"
    pathvars:
        stage="examples",
    threads: BRIDGE.store.resource("threads")
    resources:
        gpu=BRIDGE.store.resource("gpu"),
        mem_mb=BRIDGE.store.resource("mem_mb"),
        runtime=BRIDGE.store.resource("runtime"),
    params:
        command=BRIDGE.store.command(),
    message:
        "Prepare the examples {wildcards.name} of {wildcards.model}"
    shell:
        "{params.command} > {log[0]} 2>&1"
