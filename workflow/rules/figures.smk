from tallmasks.results import figures, paper

SWEPT = [name for name, spec in figures.FIGURES.items() if "subsets" in spec.views]
OF_ALL = [name for name, spec in figures.FIGURES.items() if "field" in spec.views]
LEFT_OUT = [name for name, spec in figures.FIGURES.items() if "held_out" in spec.views]
DRAWN = [name for name in figures.FIGURES if name not in SWEPT + OF_ALL + LEFT_OUT]


for _figure, _spec in figures.FIGURES.items():

    rule:
        name:
            f"figure_{_figure}"
        input:
            unpack(BRIDGE.figures.inputs(_figure)),
        output:
            svg=report(
                update(f"results/{{model}}/figures/{_figure}.svg"),
                caption=f"../report/{_figure}.rst",
                category="Figures",
                subcategory="{model}",
                labels={"in the paper": _spec.paper.lstrip("Figures ") or "beyond it", "figure": _spec.title},
            ),
            pdf=update(f"results/{{model}}/figures/{_figure}.pdf"),
            png=update(f"results/{{model}}/figures/{_figure}.png"),
            csv=update(f"results/{{model}}/figures/{_figure}.csv"),
            provenance=update(f"results/{{model}}/figures/{_figure}.provenance.json"),
        log:
            f"logs/{{model}}/figures/{_figure}.log",
        benchmark:
            f"logs/{{model}}/figures/{_figure}.benchmark.tsv"
        threads: 1
        resources:
            gpu=0,
            mem_mb=BRIDGE.store.resource("mem_mb"),
            runtime=BRIDGE.store.resource("runtime"),
        params:
            command=BRIDGE.figures.command(_figure),
        message:
            f"Draw {_figure} of {{wildcards.model}}"
        shell:
            "{params.command} > {log} 2>&1"


for _table, _spec in paper.TABLES.items():

    rule:
        name:
            f"table_{_table}"
        input:
            unpack(BRIDGE.tables.inputs(_table)),
        output:
            html=report(
                update(f"results/{{model}}/tables/{_table}.html"),
                caption=f"../report/{_table}.rst",
                category="Tables",
                subcategory="{model}",
                labels={"in the paper": ", ".join(map(str, _spec.numbers)), "table": _spec.title},
            ),
            csv=update(f"results/{{model}}/tables/{_table}.csv"),
            markdown=update(f"results/{{model}}/tables/{_table}.md"),
            latex=update(f"results/{{model}}/tables/{_table}.tex"),
            provenance=update(f"results/{{model}}/tables/{_table}.provenance.json"),
        log:
            f"logs/{{model}}/tables/{_table}.log",
        benchmark:
            f"logs/{{model}}/tables/{_table}.benchmark.tsv"
        threads: 1
        resources:
            gpu=0,
            mem_mb=BRIDGE.store.resource("mem_mb"),
            runtime=BRIDGE.store.resource("runtime"),
        params:
            command=BRIDGE.tables.command(_table),
        message:
            f"Write the table {_table} of {{wildcards.model}}"
        shell:
            "{params.command} > {log} 2>&1"


localrules:
    figures,
    sweep,
    every_method,
    paper,


# Every table, and every figure of the paper's methods but figure 5, whose subsets take longer than all the rest.  The
# results files that they show are asked for too: a lost one would not be missed where its figure is there.
rule figures:
    input:
        BRIDGE.figures.files(DRAWN, "svg", config["build"]),
        BRIDGE.tables.files(paper.TABLES, "html", config["build"]),
        BRIDGE.figures.shown(DRAWN, config["build"]),
        BRIDGE.tables.shown(paper.TABLES, config["build"]),
    message:
        "Every table is there, and every figure but figure 5"


rule sweep:
    input:
        BRIDGE.figures.files(SWEPT, "svg", config["build"]),
        BRIDGE.figures.shown(SWEPT, config["build"]),
    message:
        "Figure 5 is there"


# The later methods are no part of the paper; their evaluations take as long as its own.
rule every_method:
    input:
        BRIDGE.figures.files(OF_ALL, "svg", config["build"]),
        BRIDGE.figures.shown(OF_ALL, config["build"]),
    message:
        "The table of every method, the later ones too, and its figures are there"


rule paper:
    input:
        rules.figures.input,
        rules.sweep.input,
    message:
        "Every table and every figure is there"
