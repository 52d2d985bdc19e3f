"""Draw one figure from result files as PDF, SVG and PNG, and write its data as CSV."""

import matplotlib.pyplot as plt

from job import Job, main
from reproduction.results import figures
from reproduction.results.figures import style
from results_io import publish


@main
def run(job: Job) -> None:
    name, folder = job.params["name"], job.folder
    module = figures.figure_module(name)
    benchmarks = {benchmark: tuple(tasks) for benchmark, tasks in job.params["benchmarks"]}
    data = module.data(figures.ResultFiles(folder.parent, benchmarks))
    figure = module.draw(data)
    files = {f"{name}.{kind}": style.rendered(figure, kind) for kind in figures.FORMATS}
    plt.close(figure)
    publish(job, {f"{name}.csv": data.to_csv(index=False), **files})
