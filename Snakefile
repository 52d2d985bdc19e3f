"""Localizing Task Information for Improved Model Merging and Compression, as a workflow.

    snakemake -j4 results/tiny/8tasks/table.csv

examples, head -> finetune -> task_vector -> merge -> evaluate (chooses alpha) -> tables
                                          -> mask -> evaluate (chooses the lambdas) -> consensus -> evaluate -> tables

Each step has a rule in workflow/rules/, a script in workflow/scripts/ and a folder below store/.
src/reproduction/plan/chain.py declares its inputs and file names; `resources` in params.yaml its threads, GPUs, memory and
time.
"""

import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.27")

# use this project's code even if the environment has another copy installed
sys.path[:0] = [str(Path(workflow.basedir) / folder) for folder in ("workflow", "src")]

from tallmasks.errors import TallmasksError

try:
    from bridge import RESOURCES, before_first_job, begin
    from bridge.output import show_results
except TallmasksError as error:  # in a plug-in, such as a method's file
    sys.exit(f"error: {error}")
except KeyboardInterrupt:
    sys.exit("Interrupted.")

config, BRIDGE = begin(workflow)
CPU = {name: BRIDGE.cpu(name) for name in RESOURCES}


onstart:
    before_first_job(workflow, BRIDGE)


onsuccess:
    show_results(workflow)


wildcard_constraints:
    model="[A-Za-z0-9_.-]+",
    benchmark="[A-Za-z0-9_.-]+",
    name="[^/]+-[0-9a-f]{12}",


# The base of all rules for artifacts of the store; no file matches its own output.
rule artifact:
    output:
        "store/.artifact/{model}/{name}",
    log:
        "logs/{model}/artifact/{name}.log",
    threads: BRIDGE.artifact.resource("threads")
    resources:
        **{name: BRIDGE.artifact.resource(name) for name in RESOURCES},
    params:
        job=BRIDGE.artifact.job(),
    shell:
        "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"


include: "workflow/rules/checkpoints.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/merge.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/dvc.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        BRIDGE.tables(config["build"]),
