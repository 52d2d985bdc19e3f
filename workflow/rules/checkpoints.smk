# pretrained weights, class names, prompts -> the zero-shot head of one task
use rule examples as head with:
    input:
        unpack(BRIDGE.store.inputs("head")),
    output:
        "store/{model}/heads/{name}.safetensors",
    pathvars:
        stage="head",
    message:
        "Build the zero-shot head {wildcards.name} of {wildcards.model}"


# the hub's or a local file of weights -> the project's own format
use rule examples as pretrained with:
    input:
        unpack(BRIDGE.store.inputs("pretrained")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    pathvars:
        stage="pretrained",
    wildcard_constraints:
        name=BRIDGE.store.names("pretrained"),
    message:
        "Fetch and convert the pretrained weights of {wildcards.model}"


# somebody else's checkpoint, pretrained weights -> the trainable tensors
use rule examples as import_checkpoint with:
    input:
        unpack(BRIDGE.store.inputs("imported")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    pathvars:
        stage="imported",
    wildcard_constraints:
        name=BRIDGE.store.names("imported"),
    message:
        "Import the checkpoint {wildcards.name} of {wildcards.model}"


# training examples, head, pretrained weights -> the trainable tensors after fine-tuning
use rule examples as finetune with:
    input:
        unpack(BRIDGE.store.inputs("checkpoint")),
    output:
        "store/{model}/checkpoints/{name}.safetensors",
    pathvars:
        stage="checkpoint",
    wildcard_constraints:
        name=BRIDGE.store.names("checkpoint"),
    params:
        command=BRIDGE.store.command(loss="logs/{model}/checkpoint/{name}.loss.csv"),
    message:
        "Fine-tune {wildcards.model} on {wildcards.name}"


# checkpoint, pretrained weights -> their difference, with the thresholds of the kept fractions
use rule examples as task_vector with:
    input:
        unpack(BRIDGE.store.inputs("task_vector")),
    output:
        "store/{model}/derived/task_vectors/{name}.safetensors",
    pathvars:
        stage="task_vector",
    message:
        "Subtract the pretrained weights: task vector {wildcards.name} of {wildcards.model}"
