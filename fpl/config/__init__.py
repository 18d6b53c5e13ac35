"""Configuration: the schema of a run, its composition from files and its identity."""
