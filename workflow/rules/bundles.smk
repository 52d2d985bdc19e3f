# multi-task vector, masks, the evaluation that selects them, or task vectors; pretrained weights -> a bundle of every
# task's model
rule bundle_archive:
    input:
        unpack(BRIDGE.store.inputs("bundle_archive")),
    output:
        BRIDGE.store.path("bundle_archive"),
    log:
        BRIDGE.store.log("bundle_archive"),
    benchmark:
        BRIDGE.store.log("bundle_archive", "benchmark.tsv")
    threads: BRIDGE.store.threads("bundle_archive")
    resources:
        gpu=BRIDGE.store.resource("bundle_archive", "gpu"),
        mem_mb=BRIDGE.store.resource("bundle_archive", "mem_mb"),
        runtime=BRIDGE.store.resource("bundle_archive", "runtime"),
    params:
        command=BRIDGE.store.command("bundle_archive"),
    message:
        "Bundle the models of {wildcards.model}: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"


# Beside the files named here it writes merged.safetensors and masks/<task>.safetensors for every task; or, of a method
# without a merged vector, updates/<task>.safetensors.
# a bundle of the store -> its files
rule bundle:
    input:
        unpack(BRIDGE.views.inputs("bundle")),
    output:
        description=update("results/{model}/{benchmark}/bundle/bundle.json"),
        card=update("results/{model}/{benchmark}/bundle/README.md"),
        provenance=update("results/{model}/{benchmark}/bundle/provenance.json"),
    log:
        BRIDGE.views.log("bundle"),
    benchmark:
        BRIDGE.views.log("bundle", "benchmark.tsv")
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("arrays", "mem_mb"),
        runtime=BRIDGE.store.resource("arrays", "runtime"),
    params:
        command=BRIDGE.views.command("bundle"),
    message:
        "Write the bundle of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "{params.command} > {log} 2>&1"


# multi-task vector, masks at the chosen lambdas -> accuracy out of bundles, and their size, by dtype
rule evaluate_dtypes:
    input:
        unpack(BRIDGE.store.inputs("dtype_evaluation")),
    output:
        BRIDGE.store.path("dtype_evaluation"),
    log:
        BRIDGE.store.log("dtype_evaluation"),
    benchmark:
        BRIDGE.store.log("dtype_evaluation", "benchmark.tsv")
    threads: BRIDGE.store.threads("dtype_evaluation")
    resources:
        gpu=BRIDGE.store.resource("dtype_evaluation", "gpu"),
        mem_mb=BRIDGE.store.resource("dtype_evaluation", "mem_mb"),
        runtime=BRIDGE.store.resource("dtype_evaluation", "runtime"),
    params:
        command=BRIDGE.store.command("dtype_evaluation"),
    message:
        "Evaluate models of {wildcards.model} out of bundles of every dtype: {wildcards.name}"
    shell:
        "{params.command} > {log} 2>&1"
