from tallmasks.results import figures, paper

SWEPT = [name for name, spec in figures.FIGURES.items() if "subsets" in spec.views]
OF_ALL = [name for name, spec in figures.FIGURES.items() if "field" in spec.views]
LEFT_OUT = [name for name, spec in figures.FIGURES.items() if "held_out" in spec.views]
DRAWN = [name for name in figures.FIGURES if name not in SWEPT + OF_ALL + LEFT_OUT]


FIGURE = "results/{model}/figures/{name}.svg"  # its rule writes the others with it
TABLE = "results/{model}/tables/{name}.html"
DRAWINGS = {
    "figure": (figures.FIGURES, FIGURE, [".pdf", ".png", ".csv", ".provenance.json"]),
    "paper_table": (paper.TABLES, TABLE, [".csv", ".md", ".tex", ".provenance.json"]),
}


# the results files that a figure or a table of the paper shows -> its files
for _kind, (_specs, _file, _endings) in DRAWINGS.items():
    for _name, _spec in _specs.items():

        rule:
            name:
                f"{_kind}_{_name}"
            input:
                results=BRIDGE.drawing(_kind, _name).inputs_but(),
                outdated=BRIDGE.drawing(_kind, _name).outdated,
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
                **ARRAYS,
            params:
                script=_kind,
                job=BRIDGE.drawing(_kind, _name).job(),
            shell:
                "exec python workflow/runner/warm.py workflow/scripts/{params.script}.py {params.job} {input} {output} > {log} 2>&1"


localrules:
    figures,
    sweep,
    every_method,
    paper,


# Every table, and every figure of the paper's methods but figure 5, whose subsets take longer than all the rest.  The
# results files that they show are asked for too: a lost one would not be missed where its figure is there.
rule figures:
    input:
        expand(FIGURE, model=config["build"], name=DRAWN),
        expand(TABLE, model=config["build"], name=paper.TABLES),
        BRIDGE.shown("figure", DRAWN),
        BRIDGE.shown("paper_table", paper.TABLES),


# Figure 5.
rule sweep:
    input:
        expand(FIGURE, model=config["build"], name=SWEPT),
        BRIDGE.shown("figure", SWEPT),


# The later methods are no part of the paper; their evaluations take as long as its own.
rule every_method:
    input:
        expand(FIGURE, model=config["build"], name=OF_ALL),
        BRIDGE.shown("figure", OF_ALL),


rule paper:
    input:
        rules.figures.input,
        rules.sweep.input,
