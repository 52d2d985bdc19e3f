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
