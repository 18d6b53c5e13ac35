"""What a run writes down about itself while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fpl.train.runtime import TrainingError, Workers

# Consecutive steps with an unsupervised loss of exactly 0 after which the user is told.
SILENT_STEPS = 50


@dataclass
class TermLog:
    """Loss terms of the steps since the last flush, kept on the device: nothing waits for it before that."""

    workers: Workers
    steps: list[int] = field(default_factory=list)
    rows: list[dict[str, Tensor]] = field(default_factory=list)
    # Consecutive steps whose unsupervised loss was exactly 0.
    silent: int = 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, on the CPU."""
        rows = [{name: value.cpu() for name, value in row.items()} for row in self.rows]
        return {"steps": list(self.steps), "rows": rows, "silent": self.silent}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Put back what `state` gave."""
        self.steps, self.silent = list(state["steps"]), state["silent"]
        self.rows = [{name: value.to(device) for name, value in row.items()} for row in state["rows"]]

    def add(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """Keep the terms of one step."""
        self.steps.append(step)
        self.rows.append({name: value.detach().float() for name, value in terms.items()})

    def check(self) -> tuple[list[str], Tensor]:
        """Names and values `[steps, names]`, averaged over the workers, on the CPU.

        Raises:
            TrainingError: A value is not finite; names the first such step and the term.
        """
        names = list(self.rows[0])
        stacked = torch.stack([torch.stack([row[name] for name in names]) for row in self.rows])
        table = self.workers.average(stacked).cpu()
        finite = torch.isfinite(table)
        if not bool(finite.all()):
            row, column = (int(index) for index in (~finite).nonzero()[0])
            before = ", ".join(f"{name} {table[row - 1, i]:.4g}" for i, name in enumerate(names)) if row else ""
            raise TrainingError(
                f"the {names[column]} loss became {table[row, column].item()} at step {self.steps[row]}",
                where="training diverged",
                hint=(f"the step before had {before}; " if before else "")
                + "try a smaller optim.lr or unsupervised weight; the checkpoints from before this step are kept",
            )
        return names, table

    def flush(self) -> dict[str, float]:
        """Mean of every term over the kept steps and all workers; forgets them.

        Raises:
            TrainingError: As `check`.
        """
        names, table = self.check()
        if "unsupervised" in names:
            zero = table[:, names.index("unsupervised")] == 0.0
            self.silent = self.silent + len(zero) if bool(zero.all()) else 0
        self.steps.clear()
        self.rows.clear()
        return {name: float(value) for name, value in zip(names, table.mean(0), strict=True)}
