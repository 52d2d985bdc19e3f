import signal
import sys
from pathlib import Path

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in the imports below is no traceback

# This copy's code, also where the active environment was installed for another copy of the project.
# Jobs find it by themselves (workflow/runner/job.py).
sys.path[:0] = [str(Path(workflow.basedir) / folder) for folder in ("workflow", "src")]

from tallmasks.store.errors import TallmasksError

try:
    from bridge import begin, for_users
except TallmasksError as error:  # of a method's file, say
    sys.exit(f"error: {error}")

config, BRIDGE = begin(workflow)


onstart:
    for_users(BRIDGE.store.gpus.check)()
    for_users(BRIDGE.store.check_sources)()
    BRIDGE.store.run.end_quietly_on(signal.SIGTERM)  # Snakemake, which has just taken it, waits for running jobs


wildcard_constraints:
    model="[A-Za-z0-9_.-]+",
    benchmark="[A-Za-z0-9_.-]+",
    name="[^/]+-[0-9a-f]{12}",
