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

# DVC refuses outputs below a symbolic link, but only after the run.
link=$(find store results -maxdepth 3 -type l ! -xtype f 2>/dev/null | head -n 1)
[ -z "$link" ] || { echo "error: $link is a symbolic link, which DVC does not support; move the project's folder to" \
  "the other disk, or run snakemake without DVC" >&2; exit 1; }

# DVC records the parameters and the code as they are when this script ends; the jobs used those of its start.
inputs() {
  find params.yaml Snakefile src workflow tiny_worlds real_images real_texts models -name __pycache__ -prune -o -type f -print0 |
    sort -z | xargs -0 sha256sum
}
before=$(inputs)
PYTHONPATH=src python -m tallmasks.cli.main verify --changed "$@" # this copy's code, in any folder
snakemake --cores all -- "$target"
changed=$({ echo "$before"; inputs; } | sort | uniq -u | sed 's/^[^ ]*  //' | sort -u | head -n 3 | paste -sd ' ')
[ -z "$changed" ] || { echo "error: changed while the stage ran: $changed; the results belong to the old version. Run" \
  "dvc repro again: it only makes what the change affects" >&2; exit 1; }
