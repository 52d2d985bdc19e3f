# examples of one task, its head, its checkpoint or the pretrained weights -> counts of right answers
use rule artifact as evaluate_task with:
    input:
        validation=BRIDGE.store.input("validation"),
        test=BRIDGE.store.input("test"),
        head=BRIDGE.store.input("head"),
        checkpoint=BRIDGE.store.input("checkpoint"),
        pretrained=BRIDGE.store.input("pretrained"),
        stale=BRIDGE.store.stale,
    output:
        "store/{model}/derived/evaluate_task/{name}.json",
    log:
        "logs/{model}/evaluate_task/{name}.log",
    group:  # of one submission to a cluster: a fine-tuned model's with its fine-tuning, all zero-shot ones
        lambda wildcards: "finetuning" if wildcards.name.startswith("fine_tuned-") else "zeroshot"


# examples of all tasks, heads, the method's vectors and masks -> counts, the choice on validation data, the test
use rule artifact as evaluate with:
    input:
        validation=BRIDGE.store.input("validation"),
        test=BRIDGE.store.input("test"),
        heads=BRIDGE.store.input("heads"),
        pretrained=BRIDGE.store.input("pretrained"),
        zero_shot=BRIDGE.store.input("zero_shot"),
        fine_tuned=BRIDGE.store.input("fine_tuned"),
        method=BRIDGE.store.inputs_but("validation", "test", "heads", "pretrained", "zero_shot", "fine_tuned"),
        stale=BRIDGE.store.stale,
    output:
        "store/{model}/derived/evaluate/{name}.json",
    log:
        "logs/{model}/evaluate/{name}.log",


# examples of the tasks, heads, the vectors of other tasks' merge, its evaluation -> counts
use rule artifact as evaluate_unseen with:
    input:
        validation=BRIDGE.store.input("validation"),
        test=BRIDGE.store.input("test"),
        heads=BRIDGE.store.input("heads"),
        pretrained=BRIDGE.store.input("pretrained"),
        selection=BRIDGE.store.input("selection"),
        method=BRIDGE.store.inputs_but("validation", "test", "heads", "pretrained", "selection"),
        stale=BRIDGE.store.stale,
    output:
        "store/{model}/derived/evaluate_unseen/{name}.json",
    log:
        "logs/{model}/evaluate_unseen/{name}.log",
