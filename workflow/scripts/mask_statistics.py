"""Write density and overlap of a benchmark's selected masks, in total and by layer."""

import pandas as pd

from job import Job, main
from reproduction.evaluation.records import read_evaluation
from reproduction.models.families import family
from reproduction.results.mask_statistics import statistics
from results_io import publish
from tallmasks.masks.mask_grids import open_mask_grid
from tallmasks.vectors.task_vectors import open_multi_task_vector


@main
def run(job: Job) -> None:
    by_file: dict[str, list[pd.DataFrame]] = {}
    for method, selected, bundle, merged in zip(
        job.params["methods"], *(job.inputs[role] for role in ("selections", "mask_bundles", "merged")), strict=True
    ):
        evaluation = read_evaluation(selected).in_order(job.params["tasks"])
        chosen = dict(zip(evaluation.tasks, evaluation.mask_lambda or (), strict=True))
        tables = statistics(open_mask_grid(bundle), chosen, open_multi_task_vector(merged), family(job.params).layer_of)
        for name, table in tables.items():
            table.insert(0, "method", method)
            by_file.setdefault(f"{name}.csv", []).append(table)
    files = {name: pd.concat(tables).round(6).to_csv(index=False) for name, tables in by_file.items()}
    publish(job, files)
