"""Localizing Task Information for Improved Model Merging and Compression, as a workflow.

    snakemake -j4 results/tiny/8tasks/table.csv

examples, head -> finetune -> task_vector -> merge -> evaluate (chooses alpha) -> tables
                                          -> mask -> evaluate (chooses the lambdas) -> consensus -> evaluate -> tables

Each step has a rule in workflow/rules/, a script in workflow/scripts/ and a folder below store/.
src/tallmasks/plan/chain.py declares its inputs and file names; `resources` in params.yaml its threads, GPUs, memory and
time.
"""

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"  # reads params.yaml into `config`
include: "workflow/rules/checkpoints.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/merge.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/sweeps.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/dvc.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        BRIDGE.tables(config["build"]),
