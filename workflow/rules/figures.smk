from reproduction.results import figures, paper

FIGURE_5 = [name for name, spec in figures.FIGURES.items() if "subsets" in spec.views]
ALL_METHODS = [name for name, spec in figures.FIGURES.items() if "field" in spec.views]
HELD_OUT = [name for name, spec in figures.FIGURES.items() if "held_out" in spec.views]
PAPER = [name for name in figures.FIGURES if name not in FIGURE_5 + ALL_METHODS + HELD_OUT]

FIGURE = "results/{model}/figures/{name}.svg"  # stands for all files of the figure
TABLE = "results/{model}/tables/{name}.html"
FIGURES_AND_TABLES = {
    "figure": (figures.FIGURES, FIGURE, [".pdf", ".png", ".csv", ".provenance.json"]),
    "paper_table": (paper.TABLES, TABLE, [".csv", ".md", ".tex", ".provenance.json"]),
}


# results files -> a figure or a table of the paper
for _kind, (_specs, _file, _endings) in FIGURES_AND_TABLES.items():
    for _name, _spec in _specs.items():

        rule:
            name:
                f"{_kind}_{_name}"
            input:
                results=BRIDGE.results(_kind, _name).inputs_but(),
                outdated=BRIDGE.results(_kind, _name).outdated,
            output:
                report(
                    update(_file.replace("{name}", _name)),
                    caption=f"../report/{_name}.rst",
                    category="Figures" if _file == FIGURE else "Tables",
                    subcategory="{model}",
                    labels={"in the paper": _spec.paper or "beyond it", "shows": _spec.title},
                ),
                update(multiext(_file.replace("{name}", _name).rpartition(".")[0], *_endings)),
            log:
                f"logs/{{model}}/{_kind}/{_name}.log",
            threads: 1
            resources:
                **CPU,
            params:
                script=_kind,
                job=BRIDGE.results(_kind, _name).job(),
            shell:
                "exec python workflow/runner/warm.py workflow/scripts/{params.script}.py {params.job} {input} {output} > {log} 2>&1"


localrules:
    figures,
    sweep,
    every_method,
    paper,


# All tables and figures of the paper's methods except figure 5, whose subsets take longer than all the others.  The
# views behind them are inputs too, because an existing figure does not rebuild a deleted view.
rule figures:
    input:
        expand(FIGURE, model=config["build"], name=PAPER),
        expand(TABLE, model=config["build"], name=paper.TABLES),
        BRIDGE.views_behind("figure", PAPER),
        BRIDGE.views_behind("paper_table", paper.TABLES),


rule sweep:
    input:
        expand(FIGURE, model=config["build"], name=FIGURE_5),
        BRIDGE.views_behind("figure", FIGURE_5),


# The later methods are not in the paper, and their evaluations take as long as the paper's.
rule every_method:
    input:
        expand(FIGURE, model=config["build"], name=ALL_METHODS),
        BRIDGE.views_behind("figure", ALL_METHODS),


rule paper:
    input:
        rules.figures.input,
        rules.sweep.input,
