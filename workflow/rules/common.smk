import os
import sys
from pathlib import Path

# This copy's code, also where the active environment was installed for another copy of the project; jobs inherit it.
sys.path[:0] = [str(Path(workflow.basedir) / folder) for folder in ("workflow", "src")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([*sys.path[:2], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)

from glue import Glue

GLUE = Glue(config, workflow)


onstart:
    GLUE.check_sources()


wildcard_constraints:
    model="[A-Za-z0-9_.-]+",
    benchmark="[A-Za-z0-9_.-]+",
    name="[^/]+-[0-9a-f]{12}",
