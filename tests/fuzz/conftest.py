"""How many examples: a few in `make test`, thousands by `make fuzz` (`--hypothesis-profile thorough`)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No limit on the time of an example, for other work on the machine makes any of them slow.
settings.register_profile(
    "few", max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile(
    "thorough", parent=settings.get_profile("few"), max_examples=int(os.environ.get("FUZZ", "2000")), derandomize=False
)
settings.load_profile("few")
