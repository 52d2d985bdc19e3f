# The opening sections that exist already: `snakemake --report` may be run before all models are built.
config["opened"] = [model for model in config["build"] if Path(f"results/{model}/report/opening.html").exists()]


report: "../report/workflow.rst"


localrules:
    report,
    reported,


# tables and figures of a model -> its opening section and provenance page, written again for every report
rule about:
    input:
        BRIDGE.always,
        "results/{model}/tables/methods.html",
        "results/{model}/figures/per_task.svg",
        "results/{model}/figures/overview.svg",
    output:
        update("results/{model}/report/opening.html"),
        report(
            update("results/{model}/report/provenance.html"),
            caption="../report/provenance.rst",
            category="How it was made",
            subcategory="{model}",
            labels={"page": "Provenance"},
        ),
    log:
        "logs/{model}/about/about.log",
    threads: 1
    resources:
        **ARRAYS,
    params:
        job=BRIDGE.about,
    shell:
        "exec python workflow/runner/warm.py workflow/scripts/about.py {params.job} > {log} 2>&1"


# The report has all tables and figures of the paper's methods. Figure 5 and the figures of every method are included only
# if they exist already.
rule reported:
    input:
        rules.figures.input,
        [
            path
            for path in expand(FIGURE, model=config["build"], name=[*SWEPT, *OF_ALL, *LEFT_OUT])
            if Path(path).exists()
        ],
        expand("results/{model}/report/opening.html", model=config["build"]),


# --rerun-incomplete: a failed job can leave complete files marked as incomplete, and the report would stop at them.
rule report:
    input:
        rules.reported.input,
    log:
        "logs/report.log",
    shell:
        "(python -m snakemake --cores 1 --rerun-incomplete --report .tallmasks/report.html reported"
        " && sed -i 's|<title>Snakemake Report|<title>tallmasks: tables and figures|' .tallmasks/report.html"
        " && mv .tallmasks/report.html results/report.html) > {log} 2>&1"
