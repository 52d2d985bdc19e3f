# The results folders behind the paper's figures and tables, results/<model>/<benchmark>/<view>/.


# masks at the chosen lambdas -> densities and overlaps
rule mask_tables:
    input:
        unpack(BRIDGE.views.inputs("masks")),
    output:
        density=update("results/{model}/{benchmark}/masks/density.csv"),
        tensors=update("results/{model}/{benchmark}/masks/tensors.csv"),
        overlap=update("results/{model}/{benchmark}/masks/overlap.csv"),
        provenance=update("results/{model}/{benchmark}/masks/provenance.json"),
    log:
        BRIDGE.views.log("masks"),
    benchmark:
        BRIDGE.views.log("masks", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("masks"),
    message:
        "Write densities and overlaps of the masks of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# evaluations at every k -> thresholds.csv
rule threshold_table:
    input:
        unpack(BRIDGE.views.inputs("thresholds")),
    output:
        thresholds=update("results/{model}/{benchmark}/thresholds/thresholds.csv"),
        provenance=update("results/{model}/{benchmark}/thresholds/provenance.json"),
    log:
        BRIDGE.views.log("thresholds"),
    benchmark:
        BRIDGE.views.log("thresholds", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("thresholds"),
    message:
        "Write accuracy against the threshold k of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# evaluations out of bundles -> stored.csv
rule stored_table:
    input:
        unpack(BRIDGE.views.inputs("stored")),
    output:
        stored=update("results/{model}/{benchmark}/stored/stored.csv"),
        provenance=update("results/{model}/{benchmark}/stored/provenance.json"),
    log:
        BRIDGE.views.log("stored"),
    benchmark:
        BRIDGE.views.log("stored", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("stored"),
    message:
        "Write accuracy and size of the bundles of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# evaluations with and without disjoint task vectors -> controlled.csv
rule controlled_table:
    input:
        unpack(BRIDGE.views.inputs("controlled")),
    output:
        controlled=update("results/{model}/{benchmark}/controlled/controlled.csv"),
        provenance=update("results/{model}/{benchmark}/controlled/provenance.json"),
    log:
        BRIDGE.views.log("controlled"),
    benchmark:
        BRIDGE.views.log("controlled", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("controlled"),
    message:
        "Write the controlled experiment of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# the evaluation of every subset -> accuracy.csv by order and number of tasks
rule subset_tables:
    input:
        unpack(BRIDGE.views.inputs("subsets", checkpoints)),
    output:
        accuracy=update("results/{model}/{benchmark}/subsets/accuracy.csv"),
        orders=update("results/{model}/{benchmark}/subsets/orders.json"),
        provenance=update("results/{model}/{benchmark}/subsets/provenance.json"),
    log:
        BRIDGE.views.log("subsets"),
    benchmark:
        BRIDGE.views.log("subsets", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("subsets"),
    message:
        "Write accuracies on the subsets of {wildcards.benchmark} of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


# task vectors -> one block of a matrix, from vectors to masks
rule illustration:
    input:
        unpack(BRIDGE.views.inputs("illustration")),
    output:
        weights=update("results/{model}/{benchmark}/illustration/weights.csv"),
        provenance=update("results/{model}/{benchmark}/illustration/provenance.json"),
    log:
        BRIDGE.views.log("illustration"),
    benchmark:
        BRIDGE.views.log("illustration", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("illustration"),
    message:
        "Write a block of weights of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"
