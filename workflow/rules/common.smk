import sys
from pathlib import Path

# This copy's code, also where the active environment was installed for another copy of the project.
sys.path[:0] = [str(Path(workflow.basedir) / folder) for folder in ("workflow", "src")]

from tallmasks.errors import TallmasksError

try:
    from bridge import before_first_job, begin
    from bridge.output import show_results
except TallmasksError as error:  # of a method's file, say
    sys.exit(f"error: {error}")

config, BRIDGE = begin(workflow)
ARRAYS = {"gpu": 0, "mem_mb": BRIDGE.arrays("mem_mb"), "runtime": BRIDGE.arrays("runtime")}


onstart:
    before_first_job(workflow, BRIDGE.steps)


onsuccess:
    show_results(workflow)


wildcard_constraints:
    model="[A-Za-z0-9_.-]+",
    benchmark="[A-Za-z0-9_.-]+",
    name="[^/]+-[0-9a-f]{12}",


# What the rules of the store share: the plan knows an artifact by its name.  No file has this rule's own path.
rule artifact:
    output:
        "store/.artifact/{model}/{name}",
    log:
        "logs/{model}/artifact/{name}.log",
    threads: BRIDGE.artifact.resource("threads")
    resources:
        gpu=BRIDGE.artifact.resource("gpu"),
        mem_mb=BRIDGE.artifact.resource("mem_mb"),
        runtime=BRIDGE.artifact.resource("runtime"),
    params:
        job=BRIDGE.artifact.job(),
    shell:
        "exec python workflow/runner/warm.py workflow/scripts/{rule}.py {params.job} {input} {output} > {log} 2>&1"
