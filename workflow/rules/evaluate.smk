# examples of one task, its head, its checkpoint or the pretrained weights -> counts of correct answers
use rule artifact as evaluate_task with:
    input:
        validation=BRIDGE.artifact.input("validation"),
        test=BRIDGE.artifact.input("test"),
        head=BRIDGE.artifact.input("head"),
        checkpoint=BRIDGE.artifact.input("checkpoint"),
        pretrained=BRIDGE.artifact.input("pretrained"),
    output:
        "store/{model}/derived/evaluate_task/{name}.json",
    log:
        "logs/{model}/evaluate_task/{name}.log",
    group:  # on a cluster, submit together with the fine-tuning, or with other zero-shot evaluations
        lambda wildcards: "finetuning" if wildcards.name.startswith("fine_tuned-") else "zeroshot"


# examples of all tasks, heads, the method's vectors and masks -> counts and selected coefficients
use rule artifact as evaluate with:
    input:
        validation=BRIDGE.artifact.input("validation"),
        test=BRIDGE.artifact.input("test"),
        heads=BRIDGE.artifact.input("heads"),
        pretrained=BRIDGE.artifact.input("pretrained"),
        zero_shot=BRIDGE.artifact.input("zero_shot"),
        fine_tuned=BRIDGE.artifact.input("fine_tuned"),
        method=BRIDGE.artifact.inputs_but("validation", "test", "heads", "pretrained", "zero_shot", "fine_tuned"),
    output:
        "store/{model}/derived/evaluate/{name}.json",
    log:
        "logs/{model}/evaluate/{name}.log",


# examples and heads of unseen tasks, vectors of the merged tasks, their evaluation -> counts
use rule artifact as evaluate_unseen with:
    input:
        validation=BRIDGE.artifact.input("validation"),
        test=BRIDGE.artifact.input("test"),
        heads=BRIDGE.artifact.input("heads"),
        pretrained=BRIDGE.artifact.input("pretrained"),
        selection=BRIDGE.artifact.input("selection"),
        method=BRIDGE.artifact.inputs_but("validation", "test", "heads", "pretrained", "selection"),
    output:
        "store/{model}/derived/evaluate_unseen/{name}.json",
    log:
        "logs/{model}/evaluate_unseen/{name}.log",


# zero-shot accuracies, task vectors and examples of all tasks -> several methods on the first n of an order (figure 5)
use rule artifact as evaluate_first_tasks with:
    input:
        zero_shot=BRIDGE.artifact.input("zero_shot"),
        validation=BRIDGE.artifact.input("validation"),
        test=BRIDGE.artifact.input("test"),
        heads=BRIDGE.artifact.input("heads"),
        pretrained=BRIDGE.artifact.input("pretrained"),
        fine_tuned=BRIDGE.artifact.input("fine_tuned"),
        task_vectors=BRIDGE.artifact.input("task_vectors"),
    output:
        "store/{model}/derived/evaluate_first_tasks/{name}.json",
    log:
        "logs/{model}/evaluate_first_tasks/{name}.log",
