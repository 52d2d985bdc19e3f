# The results folders behind the paper's figures and tables, results/<model>/<benchmark>/<view>/.


# masks at the chosen lambdas -> densities and overlaps
use rule results as mask_tables with:
    input:
        unpack(BRIDGE.views.inputs("masks")),
    output:
        density=update("results/{model}/{benchmark}/masks/density.csv"),
        tensors=update("results/{model}/{benchmark}/masks/tensors.csv"),
        overlap=update("results/{model}/{benchmark}/masks/overlap.csv"),
        provenance=update("results/{model}/{benchmark}/masks/provenance.json"),
    pathvars:
        view="masks",
    message:
        "Write densities and overlaps of the masks of {wildcards.model} on {wildcards.benchmark}"


# evaluations at every k -> thresholds.csv
use rule results as threshold_table with:
    input:
        unpack(BRIDGE.views.inputs("thresholds")),
    output:
        thresholds=update("results/{model}/{benchmark}/thresholds/thresholds.csv"),
        provenance=update("results/{model}/{benchmark}/thresholds/provenance.json"),
    pathvars:
        view="thresholds",
    message:
        "Write accuracy against the threshold k of {wildcards.model} on {wildcards.benchmark}"


# evaluations with and without disjoint task vectors -> controlled.csv
use rule results as controlled_table with:
    input:
        unpack(BRIDGE.views.inputs("controlled")),
    output:
        controlled=update("results/{model}/{benchmark}/controlled/controlled.csv"),
        provenance=update("results/{model}/{benchmark}/controlled/provenance.json"),
    pathvars:
        view="controlled",
    message:
        "Write the controlled experiment of {wildcards.model} on {wildcards.benchmark}"


# the evaluation of every subset -> accuracy.csv by order and number of tasks
use rule results as subset_tables with:
    input:
        unpack(BRIDGE.views.inputs("subsets", checkpoints)),
    output:
        accuracy=update("results/{model}/{benchmark}/subsets/accuracy.csv"),
        orders=update("results/{model}/{benchmark}/subsets/orders.json"),
        provenance=update("results/{model}/{benchmark}/subsets/provenance.json"),
    pathvars:
        view="subsets",
    message:
        "Write accuracies on the subsets of {wildcards.benchmark} of {wildcards.model}"


# task vectors -> one block of a matrix, from vectors to masks
use rule results as illustration with:
    input:
        unpack(BRIDGE.views.inputs("illustration")),
    output:
        weights=update("results/{model}/{benchmark}/illustration/weights.csv"),
        provenance=update("results/{model}/{benchmark}/illustration/provenance.json"),
    pathvars:
        view="illustration",
    message:
        "Write a block of weights of {wildcards.model} on {wildcards.benchmark}"
