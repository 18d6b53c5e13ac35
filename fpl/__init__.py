"""Fuzzy Positive Learning for semi-supervised semantic segmentation: loss, runs, sweeps and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fpl.errors import FplError

if TYPE_CHECKING:
    from fpl.store.read import load_results
    from fpl.train.model import load_model

__version__ = "0.1.0"
__all__ = ["FplError", "__version__", "load_model", "load_results"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # pandas and torch take seconds to import: `fpl --help` does without them.
    if name == "load_results":
        from fpl.store.read import load_results

        return load_results
    if name == "load_model":
        from fpl.train.model import load_model

        return load_model
    raise AttributeError(f"module 'fpl' has no attribute {name!r}")
