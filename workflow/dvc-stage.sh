#!/bin/sh
# What a DVC stage runs: `workflow/dvc-stage.sh TARGET FOLDER...` checks the FOLDERs of the store, so that no damage is
# committed. Then it has Snakemake make what is missing of TARGET.  SNAKEMAKE_PROFILE=profiles/slurm sends the jobs to a
# cluster.
set -eu
target=$1
shift
if ! command -v snakemake >/dev/null; then # no environment is active: take .venv of this folder, or of one above,
  project=$PWD                             # where the project is when `dvc exp run --temp` works in .dvc/tmp
  until [ -x "$project/.venv/bin/snakemake" ]; do
    [ "$project" != / ] || { echo "error: snakemake is not on the PATH, and there is no .venv: make install" >&2; exit 1; }
    project=$(dirname "$project")
  done
  PATH=$project/.venv/bin:$PATH
fi
export PATH
PYTHONPATH=src python -m tallmasks.cli.main verify --changed "$@" # this copy's code, in any folder
exec snakemake --cores all -- "$target"
