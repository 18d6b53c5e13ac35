"""Every way to train every registered method, small: `MethodOptions.examples` as configurations."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fpl.config.compose import load_config
from fpl.config.registry import all_options
from fpl.config.schema import RunConfig

STEPS = 3
# A network with everything in it, dropout and an auxiliary head; a small rate, so that rounding has no time to grow.
SMALL = [
    *("model.network=ael", "data.labeled_batch=4", "data.unlabeled_batch=4", "data.groups=2", "data.scales=[0.5,1.5]"),
    *(f"train.steps={STEPS}", f"train.evaluate_every={STEPS}", "optim.lr=0.0001", "seed=1"),
]


class Example(NamedTuple):
    """One way to train one method."""

    method: str
    number: int

    def __str__(self) -> str:
        return f"{self.method}-{self.number}"

    def overrides(self, *more: str) -> list[str]:
        """What makes the run of `run_file` this one."""
        options = all_options()[self.method].examples[self.number]
        own = [f"method.{key}={str(value).lower()}" for key, value in options.items()]
        return [f"method.name={self.method}", *own, *SMALL, *more]

    def config(self, run_file: Path, *more: str) -> RunConfig:
        """It as a configuration."""
        return load_config(run_file, overrides=self.overrides(*more))


EXAMPLES = [Example(name, number) for name, kind in all_options().items() for number in range(len(kind.examples))]
