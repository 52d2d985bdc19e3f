# models with an opening page, for `snakemake --report` called directly
config["opened"] = [model for model in config["build"] if Path(f"results/{model}/report/opening.html").exists()]


report: "../report/workflow.rst"


localrules:
    report,
    report_only,
    reported,


# tables and figures of a model -> opening page and provenance page, rewritten for every report
rule about:
    input:
        BRIDGE.always,
        shown=BRIDGE.on_opening_page,
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


# The content of the report: the figures, tables and results files that exist and match params.yaml.
rule reported:
    input:
        BRIDGE.reported,
        expand("results/{model}/report/opening.html", model=config["build"]),


# Failed jobs can leave complete files marked as incomplete; the report needs --rerun-incomplete to accept them.
rule report_only:
    input:
        expand("results/{model}/report/opening.html", model=config["build"]),
    log:
        "logs/report.log",
    shell:
        "(python -m snakemake --cores 1 --rerun-incomplete --report .tallmasks/report.html reported"
        " && sed -i -e 's|<title>Snakemake Report|<title>tallmasks: tables and figures|'"
        " -e '\\|^    <meta charset|r workflow/report/menu_of_phones.html' .tallmasks/report.html"
        " && mv .tallmasks/report.html results/report.html) > {log} 2>&1"


# The same, after all tables and figures of the paper's methods are made.
use rule report_only as report with:
    input:
        rules.figures.input,
        rules.report_only.input,
