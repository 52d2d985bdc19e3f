import sys
from pathlib import Path

# This copy's code, also where the active environment was installed for another copy of the project.
# Jobs find it by themselves (workflow/scripts/own_code.py).
sys.path[:0] = [str(Path(workflow.basedir) / folder) for folder in ("workflow", "src")]

from glue import begin

config, GLUE = begin(workflow)
GLUE.end_quietly_on_ctrl_c()


onstart:
    GLUE.check_gpus()
    GLUE.check_sources()
    GLUE.write_ahead()


wildcard_constraints:
    model="[A-Za-z0-9_.-]+",
    benchmark="[A-Za-z0-9_.-]+",
    name="[^/]+-[0-9a-f]{12}",
