# task vectors, multi-task vector -> masks of every task for every lambda
use rule examples as mask with:
    input:
        unpack(BRIDGE.store.inputs("mask_bundle")),
    output:
        "store/{model}/derived/mask_bundles/{name}.safetensors",
    pathvars:
        stage="mask_bundle",
    message:
        "Build the masks of {wildcards.model} for the whole lambda grid: {wildcards.name}"


# multi-task vector, masks, the evaluation that selects them -> how many tasks' masks hold each weight
use rule examples as consensus with:
    input:
        unpack(BRIDGE.store.inputs("agreement")),
    output:
        "store/{model}/derived/agreements/{name}.safetensors",
    pathvars:
        stage="agreement",
    message:
        "Count the agreement of the selected masks of {wildcards.model}: {wildcards.name}"
