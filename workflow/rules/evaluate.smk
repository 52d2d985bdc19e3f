# examples of one task, its head, its checkpoint or the pretrained weights -> counts of right answers
use rule examples as evaluate_task with:
    input:
        unpack(BRIDGE.store.inputs("task_evaluation")),
    output:
        "store/{model}/derived/task_evaluations/{name}.json",
    pathvars:
        stage="task_evaluation",
    message:
        "Evaluate one model of {wildcards.model} on its own task: {wildcards.name}"


# examples of the tasks, heads, the vectors of other tasks' merge, its evaluation -> counts
use rule examples as evaluate_unseen with:
    input:
        unpack(BRIDGE.store.inputs("unseen_evaluation")),
    output:
        "store/{model}/derived/unseen_evaluations/{name}.json",
    pathvars:
        stage="unseen_evaluation",
    message:
        "Evaluate a merge of {wildcards.model} on tasks that it has not: {wildcards.name}"


# examples of all tasks, heads, the method's vectors and masks -> counts, the choice on validation data, the test
use rule examples as evaluate with:
    input:
        unpack(BRIDGE.store.inputs("evaluation")),
    output:
        "store/{model}/derived/evaluations/{name}.json",
    pathvars:
        stage="evaluation",
    message:
        "Evaluate {wildcards.model} over its grid, choose, and test: {wildcards.name}"
