"""What kinds of runs cost, remembered beside the store: torch is loaded for those alone that nobody has counted yet."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from fpl.config.layers import flatten
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.source import source_digest
from fpl.sweep.plan.cost import Cost, Memory, Work, window_of
from fpl.sweep.plan.rows import read_rows, write_rows
from fpl.text import duration

COSTS = "costs.parquet"
# Folder of results that came with the code: a store in `runs/mini` begins with what was counted for `results/mini`.
PUBLISHED = Path("results")
COSTS_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("calls", pa.float64()),
        ("gflop", pa.float64()),
        ("gigabytes", pa.float64()),
        ("images", pa.float64()),
        ("look_calls", pa.float64()),
        ("look_gflop", pa.float64()),
        ("weights", pa.int64()),
        ("optimizer", pa.int64()),
        ("memory_step", pa.int64()),
        ("memory_step_bf16", pa.int64()),
        ("memory_copies_bf16", pa.int64()),
        ("memory_gradients", pa.int64()),
        ("memory_look", pa.int64()),
    ]
)
# What a count depends on beside the configuration.
COUNTED = ("count", "count_memory", "alive", "fused", "scale", "record", "tally", "drawn")
COUNTERS = tuple(f"sweep/plan/{name}.py" for name in COUNTED)
SOURCES = ("models", "methods", "losses", "train/step.py", *COUNTERS)
# What of a configuration does: these keys, and those of the network, the method and the optimizer but its rate.
DECISIVE = (
    *(f"data.{key}" for key in ("num_classes", "crop", "labeled_batch", "unlabeled_batch", "groups")),
    "loss.kind",
    "loss.supervised",
    "loss.stride",
    "loss.ohem_min_kept",
    "train.concatenate",
)
# A count of more seconds is worth a word.
PATIENCE = 3.0


def silent(text: str) -> None:
    """Say nothing."""


class Costs:
    """Costs of runs, counted once per kind.

    Args:
        out: The store beside which they are kept; those beside published results of its name count too. None keeps
            them in memory alone.
        say: Told when counting takes longer.
    """

    def __init__(self, out: Path | None = None, say: Callable[[str], None] = silent) -> None:
        self.path = None if out is None else out / COSTS
        self.say = say

    @cached_property
    def published(self) -> dict[str, Cost]:
        """What came with published results of the store's name."""
        return {} if self.path is None else _read(PUBLISHED / self.path.parent.name / COSTS)

    @cached_property
    def known(self) -> dict[str, Cost]:
        """What the store's file has, and what was counted since."""
        return {} if self.path is None else _read(self.path)

    def of(self, config: RunConfig) -> Cost:
        """What a run costs."""
        key = cost_key(config)
        if key not in self.known and key not in self.published:
            self.learn([config])
        return self.known.get(key) or self.published[key]

    def learn(self, configs: Iterable[RunConfig]) -> None:
        """Count what is not known yet, each kind once, and keep it."""
        began = said = time.monotonic()
        wanted = {cost_key(config): config for config in configs}
        new = [key for key in wanted if key not in self.known and key not in self.published]
        for number, key in enumerate(new):
            if (now := time.monotonic()) - said > PATIENCE:
                said = now
                left = duration((now - began) / number * (len(new) - number)) if number else "?"
                self.say(f"counting what runs cost, once for each kind: {number} of {len(new)}, {left} left")
            self.known[key] = _count(key, wanted[key])
        if new and self.path is not None:
            # A plan is readable in a store that is not writable.
            with contextlib.suppress(FplError):
                write_rows(self.path, [_row(key, cost) for key, cost in self.known.items()], COSTS_SCHEMA)


def _read(path: Path) -> dict[str, Cost]:
    """Costs in a file; none where it is not there, cannot be read or is older: they can be counted again."""
    rows = []
    with contextlib.suppress(FplError):
        rows = read_rows(path, COSTS_SCHEMA, "remove the file")
    return {
        row["key"]: Cost(
            Work(row["calls"], row["gflop"], row["gigabytes"], row["images"]),
            Work(row["look_calls"], row["look_gflop"]),
            row["weights"],
            row["optimizer"],
            Memory(*(row[f"memory_{item.name}"] for item in fields(Memory))),
        )
        for row in rows
        # A column that an older version did not write is null.
        if None not in row.values()
    }


_counted: dict[str, Cost] = {}


def _count(key: str, config: RunConfig) -> Cost:
    """A count that this process has made, or makes now."""
    if key not in _counted:
        from fpl.sweep.plan.count import count

        _counted[key] = count(config, window_of(config))
    return _counted[key]


def _row(key: str, cost: Cost) -> dict[str, object]:
    look = {"look_calls": cost.look.calls, "look_gflop": cost.look.gflop}
    memory = {f"memory_{name}": value for name, value in asdict(cost.memory).items()}
    return {"key": key, **asdict(cost.step), **look, "weights": cost.weights, "optimizer": cost.optimizer, **memory}


@functools.lru_cache(maxsize=4096)
def cost_key(config: RunConfig) -> str:
    """Digest of what decides the cost of a run, 16 hex digits; it changes with the code that is counted."""
    flat = flatten(config.model_dump(mode="json"))
    tree: dict[str, object] = {key: flat.get(key) for key in DECISIVE}
    tree["model"] = config.model.model_dump(mode="json", exclude={"pretrained", "pretrained_sha256"})
    tree["method"] = config.method.model_dump(mode="json")
    tree["optim"] = config.optim.model_dump(mode="json", exclude={"lr"})
    tree["window"] = window_of(config)
    tree["code"] = source_digest(*SOURCES, libraries=("torch",))
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def step_key(config: RunConfig) -> str:
    """What decides the time of a step, as one word; the batch and the number of workers left aside.

    Of the method it has the name and the switches that are on: numbers decide no time.
    """
    data, model, loss, train = config.data, config.model, config.loss, config.train
    network: str = model.backbone
    if network == "tiny":
        network += f"-w{model.tiny_width}-d{model.tiny_depth}"
    if model.network != "cps":
        network += f"-{model.network}"
    switches = [key for key, value in config.method if value is True]
    method = "-".join([config.method.name, *switches, loss.kind])
    words = [network, f"h{model.head_channels}", model.norm, method, loss.supervised, f"c{data.num_classes}"]
    words += [f"{data.crop[0]}x{data.crop[1]}", f"stride{loss.stride}", train.precision]
    return "_".join([*words, *(["channels-last"] if train.channels_last else [])])


def precision_of(key: str) -> str:
    """The precision that a key of `step_key` names."""
    return next(word for word in reversed(key.split("_")) if word != "channels-last")
