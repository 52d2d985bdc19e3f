# The results folders behind the paper's figures and tables, results/<model>/<benchmark>/<view>/.


rule mask_tables:
    input:
        unpack(GLUE.result_inputs("masks")),
    output:
        density=update("results/{model}/{benchmark}/masks/density.csv"),
        tensors=update("results/{model}/{benchmark}/masks/tensors.csv"),
        overlap=update("results/{model}/{benchmark}/masks/overlap.csv"),
        provenance=update("results/{model}/{benchmark}/masks/provenance.json"),
    log:
        "logs/{model}/masks/{benchmark}.log",
    benchmark:
        "logs/{model}/masks/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("masks", "mask_tables"),
    message:
        "Write densities and overlaps of the masks of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


rule threshold_table:
    input:
        unpack(GLUE.result_inputs("thresholds")),
    output:
        thresholds=update("results/{model}/{benchmark}/thresholds/thresholds.csv"),
        provenance=update("results/{model}/{benchmark}/thresholds/provenance.json"),
    log:
        "logs/{model}/thresholds/{benchmark}.log",
    benchmark:
        "logs/{model}/thresholds/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("thresholds", "threshold_table"),
    message:
        "Write accuracy against the threshold k of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


rule controlled_table:
    input:
        unpack(GLUE.result_inputs("controlled")),
    output:
        controlled=update("results/{model}/{benchmark}/controlled/controlled.csv"),
        provenance=update("results/{model}/{benchmark}/controlled/provenance.json"),
    log:
        "logs/{model}/controlled/{benchmark}.log",
    benchmark:
        "logs/{model}/controlled/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("controlled", "controlled_table"),
    message:
        "Write the controlled experiment of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


rule subset_tables:
    input:
        unpack(GLUE.result_inputs("subsets", checkpoints)),
    output:
        accuracy=update("results/{model}/{benchmark}/subsets/accuracy.csv"),
        orders=update("results/{model}/{benchmark}/subsets/orders.json"),
        provenance=update("results/{model}/{benchmark}/subsets/provenance.json"),
    log:
        "logs/{model}/subsets/{benchmark}.log",
    benchmark:
        "logs/{model}/subsets/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("subsets", "subset_tables"),
    message:
        "Write accuracies on the subsets of {wildcards.benchmark} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


rule illustration:
    input:
        unpack(GLUE.result_inputs("illustration")),
    output:
        weights=update("results/{model}/{benchmark}/illustration/weights.csv"),
        provenance=update("results/{model}/{benchmark}/illustration/provenance.json"),
    log:
        "logs/{model}/illustration/{benchmark}.log",
    benchmark:
        "logs/{model}/illustration/{benchmark}.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=GLUE.resource("arrays", "mem_mb"),
        runtime=GLUE.resource("arrays", "runtime"),
    params:
        command=GLUE.result_job("illustration", "illustration"),
    message:
        "Write a block of weights of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"
