"""Write the table of all methods for a benchmark, and a comparison with published numbers."""

from job import Job, main
from reproduction.results.field_tables import field_table, laid_out_field
from reproduction.results.paper import published_name
from reproduction.results.reference import beside_families, family_of
from reproduction.results.stored_files import starting_point, stored_gigabits
from reproduction.results.typesetting import latex, markdown
from results_io import counts_of, evaluations_of, origins_of, publish

PUBLISHED = "vs_published.csv"


@main
def run(job: Job) -> None:
    (seed,) = job.params["seeds"]
    model, benchmark, tasks = job.params["model"], job.params["benchmark"], job.params["tasks"]
    evaluations, finetuned = evaluations_of(job, seed)
    with starting_point(job.params, job.input("pretrained")) as start:
        stored = {one.method: stored_gigabits(one, start) for one in evaluations}
    table = field_table(evaluations, finetuned, counts_of(job), stored)
    layout = laid_out_field(table, f"Every method, {model} on {benchmark} ({len(tasks)} tasks)")
    origins = origins_of(job, seed)
    checkpoints = family_of(origins.get(task, {}).get("checkpoint", {}).get("source") for task in tasks)
    compared = beside_families(table, published_name(job.params), tasks, checkpoints)
    files = {
        "field.csv": table.to_csv(index=False),
        "field.md": markdown(layout),
        "field.tex": latex(layout, f"field-{benchmark}"),
    }
    if len(compared) and "merged" not in job.params:
        files[PUBLISHED] = compared.to_csv(index=False)
    publish(job, files, {"origins": origins})
    if PUBLISHED not in files:
        (job.folder / PUBLISHED).unlink(missing_ok=True)  # left from an earlier set of tasks
    print(files["field.md"])
