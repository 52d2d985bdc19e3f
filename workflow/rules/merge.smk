# task vectors, and what some merges have to know of the tasks' data -> multi-task vector
use rule examples as merge with:
    input:
        unpack(BRIDGE.store.inputs("multi_task_vector")),
    output:
        "store/{model}/derived/multi_task_vectors/{name}.safetensors",
    pathvars:
        stage="multi_task_vector",
    message:
        "Merge the task vectors of {wildcards.model}: {wildcards.name}"
