"""Where commands put results unless they are told otherwise, and where they are found again."""

from __future__ import annotations

from pathlib import Path

# Of `fpl train`. `fpl reproduce` has RUNS/SCALE.
LOCAL, RUNS = Path("results/local"), Path("runs")
# What came with the repository.
PUBLISHED = Path("results/mini")
STORES = f"{LOCAL} and {RUNS}/*, newest first"


def own_stores() -> list[Path]:
    """The stores that commands have made here without being told where, the one that was written last first."""
    found = [folder for folder in (LOCAL, *RUNS.glob("*/")) if folder.is_dir()]
    return sorted(found, key=lambda folder: (-_written(folder), folder))


def _written(folder: Path) -> float:
    """When a run of a store last began or ended."""
    return max(
        (part.stat().st_mtime for name in ("runs", "checkpoints") if (part := folder / name).is_dir()), default=0
    )
