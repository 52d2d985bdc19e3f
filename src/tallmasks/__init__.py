"""TALL-masks and Consensus Merging on arrays: task vectors, merging, masks, consensus, bundles.

Pure functions on arrays at the core and files at the edge; the workflow in ``workflow/`` is one user of it.
"""

__version__ = "0.1.0"
