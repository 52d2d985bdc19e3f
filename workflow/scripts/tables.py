"""Write the tables, selected values and mask agreement of one benchmark."""

import json

import pandas as pd

from job import Job, main
from reproduction.models.checkpoint_sources import seen_validation
from reproduction.models.families import family
from reproduction.results.paper import published_name
from reproduction.results.reference import beside_paper, beside_published, paper_rows
from reproduction.results.stored_files import starting_point, stored_gigabits
from reproduction.results.tables import (
    agreement_table,
    headline_numbers,
    interval_table,
    per_task_table,
    selection_record,
    summary_table,
    table_for_people,
)
from results_io import counts_of, evaluations_of, origins_of, publish
from tallmasks.masks.consensus import AgreementProfile, agreement_profile, open_agreement
from tallmasks.vectors.task_vectors import open_multi_task_vector


def comparisons(job: Job, summary: pd.DataFrame, per_task: pd.DataFrame) -> dict[str, pd.DataFrame | None]:
    """Comparisons with published numbers by file name; None if there are none."""
    model, tasks = published_name(job.params), job.params["tasks"]
    paper = None if "merged" in job.params else paper_rows(model, tasks)
    alone = per_task.query("split == 'test'")[["task", "method", "accuracy"]]
    published = beside_published(alone, model).dropna(subset="source")
    return {
        "vs_paper.csv": None if paper is None else beside_paper(summary, paper, model, tasks),
        "vs_paper_per_task.csv": None if published.empty else published,
    }


def profiles(job: Job, seed: int) -> dict[str, AgreementProfile]:
    roles = job.params["agreements"], job.inputs[f"{seed}/agreements"], job.inputs[f"{seed}/merged"]
    return {
        method: agreement_profile(open_agreement(agreement), open_multi_task_vector(merged), len(job.params["tasks"]))
        for method, agreement, merged in zip(*roles, strict=True)
    }


@main
def run(job: Job) -> None:
    (seed,) = job.params["seeds"]
    evaluations, finetuned = evaluations_of(job, seed)
    with starting_point(job.params, job.input("pretrained")) as start:
        stored = {one.method: stored_gigabits(one, start) for one in evaluations}
    summary = summary_table(evaluations, finetuned, counts_of(job), stored)
    per_task = per_task_table(evaluations, finetuned)
    title = f"{job.params['model']} on {job.params['benchmark']} ({len(job.params['tasks'])} tasks)"
    files = {
        "table.csv": summary.to_csv(index=False, float_format="%.4f"),
        "table.md": table_for_people(summary, title),
        "per_task.csv": per_task.to_csv(index=False),
        "intervals.csv": interval_table(evaluations).to_csv(index=False),
        "selection.json": json.dumps(selection_record(evaluations, finetuned), indent=1) + "\n",
        "agreement.csv": agreement_table(profiles(job, seed)).to_csv(index=False),
        "metrics.json": json.dumps(headline_numbers(summary), indent=1) + "\n",
    }
    compared = comparisons(job, summary, per_task)
    files |= {name: table.to_csv(index=False) for name, table in compared.items() if table is not None}
    origins = origins_of(job, seed)
    of_tasks = {task: origins[task] for task in job.params["tasks"] if task in origins}
    note = seen_validation(of_tasks, family(job.params).publishers)
    publish(job, files, {"origins": origins, "notes": [note] if note else []})
    for name in compared.keys() - files.keys():
        (job.folder / name).unlink(missing_ok=True)  # left from an earlier set of tasks
    print(files["table.md"] + (f"\nNote: {note}." if note else ""))
