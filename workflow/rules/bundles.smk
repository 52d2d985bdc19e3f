# multi-task vector, masks, the evaluation that selects them, or task vectors; pretrained weights -> a bundle of every
# task's model
use rule examples as bundle_archive with:
    input:
        unpack(BRIDGE.store.inputs("bundle_archive")),
    output:
        "store/{model}/derived/bundles/{name}.safetensors",
    pathvars:
        stage="bundle_archive",
    message:
        "Bundle the models of {wildcards.model}: {wildcards.name}"


# Beside the files named here it writes merged.safetensors and masks/<task>.safetensors for every task; or, of a method
# without a merged vector, updates/<task>.safetensors.
# a bundle of the store -> its files
use rule results as bundle with:
    input:
        unpack(BRIDGE.views.inputs("bundle")),
    output:
        description=update("results/{model}/{benchmark}/bundle/bundle.json"),
        card=update("results/{model}/{benchmark}/bundle/README.md"),
        provenance=update("results/{model}/{benchmark}/bundle/provenance.json"),
    pathvars:
        view="bundle",
    message:
        "Write the bundle of {wildcards.model} on {wildcards.benchmark}"
