"""A callback of Ray Tune as a user would write one: it notes in a file what it is told."""

from __future__ import annotations

import json
import os
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
