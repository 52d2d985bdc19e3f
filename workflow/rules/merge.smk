# task vectors, for some merges statistics of the tasks' data -> multi-task vector
use rule artifact as merge with:
    input:
        task_vectors=BRIDGE.artifact.input("task_vectors"),
        statistics=BRIDGE.artifact.input("statistics"),
    output:
        "store/{model}/derived/merge/{name}.safetensors",
    log:
        "logs/{model}/merge/{name}.log",


# task vectors, multi-task vector -> masks of all tasks for all lambdas
use rule artifact as mask with:
    input:
        task_vectors=BRIDGE.artifact.input("task_vectors"),
        multi_task_vector=BRIDGE.artifact.input("multi_task_vector"),
    output:
        "store/{model}/derived/mask/{name}.safetensors",
    log:
        "logs/{model}/mask/{name}.log",


# multi-task vector, masks, the evaluation that selects lambdas -> number of tasks that keep each weight
use rule artifact as consensus with:
    input:
        multi_task_vector=BRIDGE.artifact.input("multi_task_vector"),
        mask_bundle=BRIDGE.artifact.input("mask_bundle"),
        selection=BRIDGE.artifact.input("selection"),
    output:
        "store/{model}/derived/consensus/{name}.safetensors",
    log:
        "logs/{model}/consensus/{name}.log",


# multi-task vector, masks and their selection, or task vectors; pretrained weights -> bundle
use rule artifact as bundle_archive with:
    input:
        multi_task_vector=BRIDGE.artifact.input("multi_task_vector"),
        mask_bundle=BRIDGE.artifact.input("mask_bundle"),
        selection=BRIDGE.artifact.input("selection"),
        task_vectors=BRIDGE.artifact.input("task_vectors"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/derived/bundle_archive/{name}.safetensors",
    log:
        "logs/{model}/bundle_archive/{name}.log",
