report: "../report/workflow.rst"


localrules:
    report,
    reported,


# Made anew for every report.
rule about:
    input:
        BRIDGE.report.always,
        "results/{model}/tables/methods.html",
        "results/{model}/figures/radar.svg",
        "results/{model}/figures/pareto.svg",
    output:
        opening=update("results/{model}/report/opening.html"),
        parameters=report(
            update("results/{model}/report/parameters.html"),
            caption="../report/parameters.rst",
            category="How it was made",
            subcategory="{model}",
            labels={"page": "Parameters"},
        ),
        run_times=report(
            update("results/{model}/report/run_times.html"),
            caption="../report/run_times.rst",
            category="How it was made",
            subcategory="{model}",
            labels={"page": "Run times"},
        ),
        provenance=report(
            update("results/{model}/report/provenance.html"),
            caption="../report/provenance.rst",
            category="How it was made",
            subcategory="{model}",
            labels={"page": "Provenance"},
        ),
    log:
        "logs/{model}/about/about.log",
    benchmark:
        "logs/{model}/about/about.benchmark.tsv"
    threads: 1
    resources:
        gpu=0,
        mem_mb=BRIDGE.store.resource("mem_mb"),
        runtime=BRIDGE.store.resource("runtime"),
    params:
        command=BRIDGE.report.about(),
    message:
        "Write the opening, parameters, run times and provenance of {wildcards.model}"
    shell:
        "{params.command} > {log} 2>&1"


# What the report holds: the figures and tables of the paper's methods but figure 5; figure 5, and the figures of every
# method, where they are there already.
rule reported:
    input:
        rules.figures.input,
        [
            path
            for path in BRIDGE.figures.files(SWEPT + OF_ALL + LEFT_OUT, "svg", config["build"])
            if Path(path).exists()
        ],
        expand("results/{model}/report/parameters.html", model=config["build"]),
    message:
        "Everything that the report shows is there"


rule report:
    input:
        rules.reported.input,
    log:
        "logs/report.log",
    params:
        command=BRIDGE.report.command("results/report.html", "reported"),
    message:
        "Write results/report.html"
    shell:
        "{params.command} > {log} 2>&1"
