"""Configuration: the schema of a run, its composition from files and its identity."""

from fpl.config.compose import load_config, validate
from fpl.config.identity import canonical, digest, run_id
from fpl.config.layers import flatten
from fpl.config.schema import RunConfig

__all__ = ["RunConfig", "canonical", "digest", "flatten", "load_config", "run_id", "validate"]
