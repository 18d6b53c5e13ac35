"""The record of all runs: Parquet, one atomic file per run and table."""
