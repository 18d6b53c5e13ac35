"""Callbacks of Ray Tune as a user would write them: one notes in a file what it is told, one holds a search."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ray.tune.logger import LoggerCallback


class Tracker(LoggerCallback):  # type: ignore[misc]
    """Writes into the file that TRACKED names."""

    def __init__(self) -> None:
        self.path = Path(os.environ["TRACKED"])

    def log_trial_start(self, trial: Any) -> None:
        self._note(began=str(trial), settings=trial.config["settings"])

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        self._note(of=str(trial), run=result.get("run_id"), miou=result.get("miou"))

    def _note(self, **said: Any) -> None:
        with self.path.open("a") as stream:
            stream.write(json.dumps(said) + "\n")


class Holding(LoggerCallback):  # type: ignore[misc]
    """Holds the driver, and so the run, which waits for an answer, once two trials are over and another is at work."""

    def __init__(self) -> None:
        self.over = 0

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self.over += 1

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        if self.over >= 2 and 4 <= result.get("step", 0) < 8 and "miou" in result["metrics"]:
            # Whoever started it kills it.
            time.sleep(1000)
