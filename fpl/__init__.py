"""Fuzzy Positive Learning for semi-supervised semantic segmentation: loss, runs, sweeps and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fpl.errors import FplError

if TYPE_CHECKING:
    from fpl.store.read import load_results

__version__ = "0.1.0"
__all__ = ["FplError", "__version__", "load_results"]


def __getattr__(name: str) -> Any:
    # pandas takes half a second to import: `fpl --help` and `import fpl.losses` do without it.
    if name == "load_results":
        from fpl.store.read import load_results

        return load_results
    raise AttributeError(f"module 'fpl' has no attribute {name!r}")
