"""Configuration: the schema of a run, its composition from files and its identity."""

from fpl.config.compose import canonical, digest, flatten, load_config, run_id, validate
from fpl.config.schema import RunConfig

__all__ = ["RunConfig", "canonical", "digest", "flatten", "load_config", "run_id", "validate"]
