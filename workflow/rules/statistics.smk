# What is known of a task's data beside its checkpoint; made for the merges that ask for it.
# checkpoint, training examples -> second moments of what enters each linear layer
use rule examples as grams with:
    input:
        unpack(BRIDGE.store.inputs("grams")),
    output:
        "store/{model}/derived/grams/{name}.safetensors",
    pathvars:
        stage="grams",
    message:
        "Compute the second moments of layer inputs of {wildcards.model}: {wildcards.name}"


# checkpoint, training examples -> squared gradients of log-probabilities
use rule examples as fisher with:
    input:
        unpack(BRIDGE.store.inputs("fisher")),
    output:
        "store/{model}/derived/fisher/{name}.safetensors",
    pathvars:
        stage="fisher",
    message:
        "Compute the squared gradients of {wildcards.model}: {wildcards.name}"


# task vectors, validation examples without labels -> what a merge learns from all tasks at once
use rule examples as learn with:
    input:
        unpack(BRIDGE.store.inputs("learned")),
    output:
        "store/{model}/derived/learned/{name}.safetensors",
    pathvars:
        stage="learned",
    message:
        "Learn a merge of {wildcards.model} from unlabelled data: {wildcards.name}"
