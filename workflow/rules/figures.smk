from tallmasks.results import figures, paper

SWEPT = [name for name, spec in figures.FIGURES.items() if "subsets" in spec.views]
OF_ALL = [name for name, spec in figures.FIGURES.items() if "field" in spec.views]
LEFT_OUT = [name for name, spec in figures.FIGURES.items() if "held_out" in spec.views]
DRAWN = [name for name in figures.FIGURES if name not in SWEPT + OF_ALL + LEFT_OUT]


FIGURE = "results/{model}/figures/{name}.svg"  # its rule writes the others with it


# the results files that a figure shows -> the figure
for _figure, _spec in figures.FIGURES.items():

    rule:
        name:
            f"figure_{_figure}"
        input:
            results=BRIDGE.drawing("figure", _figure).inputs,
            stale=BRIDGE.drawing("figure", _figure).stale,
        output:
            report(
                update(f"results/{{model}}/figures/{_figure}.svg"),
                caption=f"../report/{_figure}.rst",
                category="Figures",
                subcategory="{model}",
                labels={"in the paper": _spec.paper.lstrip("Figures ") or "beyond it", "figure": _spec.title},
            ),
            update(multiext(f"results/{{model}}/figures/{_figure}", ".pdf", ".png", ".csv", ".provenance.json")),
        log:
            f"logs/{{model}}/figures/{_figure}.log",
        threads: 1
        resources:
            gpu=0,
            mem_mb=BRIDGE.store.resource("mem_mb"),
            runtime=BRIDGE.store.resource("runtime"),
        params:
            job=BRIDGE.drawing("figure", _figure).job,
        shell:
            "exec python workflow/runner/warm.py workflow/scripts/figure.py {params.job} > {log} 2>&1"


# the results files that a table of the paper shows -> the table
for _table, _spec in paper.TABLES.items():

    rule:
        name:
            f"table_{_table}"
        input:
            results=BRIDGE.drawing("paper_table", _table).inputs,
            stale=BRIDGE.drawing("paper_table", _table).stale,
        output:
            report(
                update(f"results/{{model}}/tables/{_table}.html"),
                caption=f"../report/{_table}.rst",
                category="Tables",
                subcategory="{model}",
                labels={"in the paper": ", ".join(map(str, _spec.numbers)), "table": _spec.title},
            ),
            update(multiext(f"results/{{model}}/tables/{_table}", ".csv", ".md", ".tex", ".provenance.json")),
        log:
            f"logs/{{model}}/tables/{_table}.log",
        threads: 1
        resources:
            gpu=0,
            mem_mb=BRIDGE.store.resource("mem_mb"),
            runtime=BRIDGE.store.resource("runtime"),
        params:
            job=BRIDGE.drawing("paper_table", _table).job,
        shell:
            "exec python workflow/runner/warm.py workflow/scripts/paper_table.py {params.job} > {log} 2>&1"


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
        expand("results/{model}/tables/{name}.html", model=config["build"], name=paper.TABLES),
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
