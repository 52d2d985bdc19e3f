# hub, local folder or seed -> examples of one split of one task
use rule artifact as examples with:
    input:
        data=BRIDGE.artifact.inputs_but(),
    output:
        "store/data/{model}/examples/{name}.safetensors",
    log:
        "logs/{model}/examples/{name}.log",


# pretrained weights, class names, prompts or training examples -> head of one task; or checkpoint -> its trained head
use rule artifact as head with:
    input:
        checkpoint=BRIDGE.artifact.input("checkpoint"),
        examples=BRIDGE.artifact.input("examples"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/head/{name}.safetensors",
    log:
        "logs/{model}/head/{name}.log",


# weights from the hub or a local file -> weights in the project's format
use rule artifact as pretrained with:
    input:
        weights=BRIDGE.artifact.input("weights"),
    output:
        "store/{model}/checkpoints/pretrained/{name}.safetensors",
    log:
        "logs/{model}/pretrained/{name}.log",


# published checkpoint, pretrained weights -> trainable tensors
use rule artifact as import_checkpoint with:
    input:
        weights=BRIDGE.artifact.input("weights"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/checkpoints/import_checkpoint/{name}.safetensors",
    log:
        "logs/{model}/import_checkpoint/{name}.log",


# training examples, head, pretrained weights -> fine-tuned trainable tensors
use rule artifact as finetune with:
    input:
        examples=BRIDGE.artifact.input("examples"),
        validation=BRIDGE.artifact.input("validation"),
        head=BRIDGE.artifact.input("head"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/checkpoints/finetune/{name}.safetensors",
    log:
        "logs/{model}/finetune/{name}.log",
    params:
        job=BRIDGE.artifact.job(loss="logs/{model}/finetune/{name}.loss.csv"),


# checkpoint, pretrained weights -> their difference, with trim thresholds
use rule artifact as task_vector with:
    input:
        checkpoint=BRIDGE.artifact.input("checkpoint"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/derived/task_vector/{name}.safetensors",
    log:
        "logs/{model}/task_vector/{name}.log",
