"""How many examples: a few in `make test`, thousands by `make fuzz` (`--hypothesis-profile thorough`)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# No limit on the time of an example, for other work on the machine makes any of them slow.
settings.register_profile(
    "few", max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile(
    "thorough", parent=settings.get_profile("few"), max_examples=int(os.environ.get("FUZZ", "2000")), derandomize=False
)
settings.load_profile("few")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each report of a property say how many examples it was asked for."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.user_properties.append(("examples", settings.default.max_examples))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many there were: fewer of a property where there are no more."""
    asked = [dict(report.user_properties).get("examples") for report in terminalreporter.stats.get("passed", [])]
    counts = [each for each in asked if each]
    terminalreporter.write_line(f"{len(counts)} properties held for up to {sum(counts):,} examples")
