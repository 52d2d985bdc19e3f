# models with an opening page, for `snakemake --report` called directly
config["opened"] = [model for model in config["build"] if Path(f"results/{model}/report/opening.html").exists()]


report: "../report/workflow.rst"


localrules:
    report,
    reported,


# tables and figures of a model -> opening page and provenance page, rewritten for every report
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
        **CPU,
    params:
        job=BRIDGE.about,
    shell:
        "exec python workflow/runner/warm.py workflow/scripts/about.py {params.job} > {log} 2>&1"


# The content of the report: figures and tables of the paper's methods, and of the other figures those that exist.
rule reported:
    input:
        rules.figures.input,
        [
            path
            for path in expand(FIGURE, model=config["build"], name=FIGURE_5 + ALL_METHODS + HELD_OUT)
            if Path(path).exists()
        ],
        expand("results/{model}/report/opening.html", model=config["build"]),


# Failed jobs can leave complete files marked as incomplete; the report needs --rerun-incomplete to accept them.
rule report:
    input:
        rules.reported.input,
    log:
        "logs/report.log",
    shell:
        "(python -m snakemake --cores 1 --rerun-incomplete --report .tallmasks/report.html reported"
        " && sed -i 's|<title>Snakemake Report|<title>tallmasks: tables and figures|' .tallmasks/report.html"
        " && mv .tallmasks/report.html results/report.html) > {log} 2>&1"
