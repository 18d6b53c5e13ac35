"""TensorBoard's files: a folder for each run, written while it trains, all below one folder of the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fpl.errors import FplError, ShortageError
from fpl.files import keep, visible
from fpl.train.loop import OnMetrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def summary_writer() -> type[SummaryWriter]:
    """The class that writes events.

    Raises:
        ShortageError: TensorBoard is not installed here. That is no failure of a run.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ShortageError(
            "TensorBoard is not installed",
            where="--tensorboard",
            hint="pip install '.[tensorboard]' in the clone, on every machine that trains",
        ) from None
    return SummaryWriter


@contextlib.contextmanager
def event_log(folder: Path, wanted: bool) -> Iterator[OnMetrics]:
    """What takes a run's metrics, step by step.

    Args:
        folder: Of the run; a run that is continued has one.
        wanted: False, as on all ranks but the first, takes them and writes nothing.

    Raises:
        ShortageError: As `summary_writer`.
    """
    if not wanted:
        yield lambda step, metrics: None
        return
    make = summary_writer()
    try:
        with contextlib.ExitStack() as opened:
            writers: list[SummaryWriter] = []

            def log(step: int, metrics: dict[str, float]) -> None:
                if not writers:
                    # Steps that a killed process logged and that are now taken again would be shown twice.
                    writers.append(opened.enter_context(make(folder, purge_step=step + 1)))
                for name, value in metrics.items():
                    writers[0].add_scalar(name, value, step)

            yield log
    except BaseException:
        # Of a run that failed they say most; what stopped it is what is told.
        with contextlib.suppress(FplError, OSError):
            _keep_all(folder)
        raise
    _keep_all(folder)


def _keep_all(folder: Path) -> None:
    for path in visible(folder, "*"):
        keep(path)
