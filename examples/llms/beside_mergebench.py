"""MergeBench's numbers for one base, with your own from results.csv beside them, as a Markdown table.

    .venv/bin/python examples/llms/beside_mergebench.py results.csv --base Llama-3.2-3B

A row per task and metric that MergeBench's repository has results for; a column per model of results.csv, empty where
that lacks the row.  The rows of bigcode-evaluation-harness and safety-eval fill once you add their scores to
results.csv under these names.
"""

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import pandas as pd

KEYS = ["task", "metric"]


def beside(results: pd.DataFrame, base: str) -> pd.DataFrame:
    """Program, task, metric and value of MergeBench's rows for the base, then the value of each model of `results`."""
    with files("reproduction.results.reference").joinpath("mergebench.csv").open() as file:
        published = pd.read_csv(file)
    if base not in set(published["base"]):
        sys.exit(f"--base {base}: MergeBench's repository has results for {' and '.join(published['base'].unique())}")
    rows = published[published["base"] == base]
    theirs = rows[["program", *KEYS]].assign(**{f"MergeBench, {rows['method'].iloc[0]}": rows["value"]})
    models = list(dict.fromkeys(results["model"]))
    mine = results.pivot(index=KEYS, columns="model", values="value")[models]
    return theirs.merge(mine.reset_index(), on=KEYS, how="left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the CSV file that measure.py wrote")
    parser.add_argument("--base", required=True, help="Llama-3.2-3B or Llama-3.1-8B")
    arguments = parser.parse_args()
    table = beside(pd.read_csv(arguments.results), arguments.base)
    print("|", " | ".join(table.columns), "|")
    print("|", " | ".join("---" for _ in table.columns), "|")
    for row in table.itertuples(index=False):
        print("|", " | ".join("" if pd.isna(value) else str(value) for value in row), "|")


if __name__ == "__main__":
    main()
