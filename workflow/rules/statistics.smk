# What is known of a task's data beside its checkpoint; made for the merges that ask for it.


# checkpoint, training examples -> a statistic of them, such as second moments of what enters each linear layer
use rule artifact as statistic with:
    input:
        checkpoint=BRIDGE.artifact.input("checkpoint"),
        examples=BRIDGE.artifact.input("examples"),
        head=BRIDGE.artifact.input("head"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/derived/statistic/{name}.safetensors",
    log:
        "logs/{model}/statistic/{name}.log",


# task vectors, validation examples without labels -> what a merge learns from all tasks at once
use rule artifact as learn with:
    input:
        task_vectors=BRIDGE.artifact.input("task_vectors"),
        validation=BRIDGE.artifact.input("validation"),
        heads=BRIDGE.artifact.input("heads"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/derived/learn/{name}.safetensors",
    log:
        "logs/{model}/learn/{name}.log",
