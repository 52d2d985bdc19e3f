"""Write the long table of a benchmark: every method there is, and ours beside what was published of each."""

from job import Job, main
from results_io import evaluations_of, origins_of, publish
from tables import counts_of
from tallmasks.artifacts.folders import PROVENANCE
from tallmasks.results.field_tables import field_table, laid_out_field
from tallmasks.results.paper import published_name
from tallmasks.results.reference import beside_families, family_of
from tallmasks.results.stored_files import starting_point, stored_gigabits
from tallmasks.results.typesetting import latex, markdown

PUBLISHED = "vs_published.csv"


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
    publish(job, files, {"origins": origins}, f"field.{PROVENANCE}")
    if PUBLISHED not in files:
        (job.outputs["folder"] / PUBLISHED).unlink(missing_ok=True)  # of a set of tasks that it had before
    print(files["field.md"])


if __name__ == "__main__":
    main(run)
