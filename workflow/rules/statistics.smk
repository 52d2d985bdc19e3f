# checkpoint, training examples -> a statistic that some merges need, such as second moments of layer inputs
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


# task vectors, unlabelled validation examples -> learned parameters of a merge
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
