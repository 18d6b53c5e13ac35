"""The record of all runs: Parquet, one atomic file per run and table."""

from fpl.store.read import Results, load_results
from fpl.store.write import run_path, write_run

__all__ = ["Results", "load_results", "run_path", "write_run"]
