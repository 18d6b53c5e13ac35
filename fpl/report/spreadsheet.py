"""Frames as CSV: read back by pandas as they are, and harmless to a spreadsheet."""

from __future__ import annotations

from typing import Any

import pandas as pd

# A spreadsheet takes text that begins so for a formula, and a formula may run programs.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(frame: pd.DataFrame, digits: int | None = None) -> bytes:
    """A frame as CSV.

    Args:
        frame: Without its index.
        digits: Significant ones of numbers; twelve hide that floats were added in another order. None: all.
    """
    safe = frame.copy()
    for name in frame:
        if isinstance(frame[name].dtype, pd.DatetimeTZDtype):
            safe[name] = [None if pd.isna(time) else time.isoformat() for time in frame[name]]
        elif not pd.api.types.is_numeric_dtype(frame[name]):
            safe[name] = frame[name].map(harmless)
    safe.columns = [harmless(name) for name in frame]
    number = f"%.{digits}g" if digits else None
    made: str = safe.to_csv(index=False, float_format=number, lineterminator="\n")
    return made.encode()


def harmless(value: Any) -> Any:
    """A text that would be a formula with an apostrophe before it, which spreadsheets do not show; else the value."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
