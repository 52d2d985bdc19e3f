"""Write one of the paper's tables, our numbers next to the paper's, as CSV, Markdown, LaTeX and HTML."""

import pandas as pd

from job import Job, main
from reproduction.results.paper_tables import laid_out, side_by_side
from reproduction.results.typesetting import html_page, latex, markdown
from results_io import publish

FILES = {"controlled": "controlled/controlled.csv"}


@main
def run(job: Job) -> None:
    name, model, folder = job.params["name"], job.params["model"], job.folder
    tasks = dict(job.params["benchmarks"])
    file = FILES.get(name, "table.csv")
    ours = {benchmark: pd.read_csv(folder.parent / benchmark / file) for benchmark in tasks}
    published = job.params.get("published", model)
    data = side_by_side(name, published, ours, tasks)
    layout = laid_out(name, model, data, tasks, published)
    files = {
        f"{name}.csv": data.to_csv(index=False),
        f"{name}.md": markdown(layout),
        f"{name}.tex": latex(layout, name),
        f"{name}.html": html_page(layout),
    }
    publish(job, files)
    print(files[f"{name}.md"])
