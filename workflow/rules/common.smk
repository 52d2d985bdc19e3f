import sys
from pathlib import Path

# This copy's code, also where the active environment was installed for another copy of the project.
CODE = [str(Path(workflow.basedir) / folder) for folder in ("workflow", "src")]
sys.path[:0] = CODE

from glue import begin, import_from

import_from(CODE)
config, GLUE = begin(workflow)


onstart:
    GLUE.check_sources()


wildcard_constraints:
    model="[A-Za-z0-9_.-]+",
    benchmark="[A-Za-z0-9_.-]+",
    name="[^/]+-[0-9a-f]{12}",
