"""Localizing Task Information for Improved Model Merging and Compression, as a workflow.

    snakemake -j4 results/tiny/8tasks/table.csv

fine-tune -> task vector -> merge -> mask -> consensus -> evaluate -> results/<model>/<benchmark>/
"""

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"  # reads params.yaml into `config`
include: "workflow/rules/examples.smk"
include: "workflow/rules/checkpoints.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/merge.smk"
include: "workflow/rules/masks.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/bundles.smk"
include: "workflow/rules/sweeps.smk"
include: "workflow/rules/paper.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/dvc.smk"
include: "workflow/rules/unknown.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        BRIDGE.views.tables(config["build"]),
