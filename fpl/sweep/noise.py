"""One run repeated with the same seed: what differs is what the hardware's arithmetic does to the mIoU, no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fpl.config.identity import run_id
from fpl.store.done import run_row
from fpl.store.remote import refresh_run
from fpl.store.schema import METRICS, NOISE
from fpl.store.write import run_path, write_table
from fpl.sweep.execution import Execution
from fpl.sweep.places import Places
from fpl.sweep.plan.wanted import Wanted
from fpl.sweep.prepare import pin
from fpl.sweep.reproduce import Account, carry_out


def measure_noise(
    wanted: Wanted,
    repeats: int,
    places: Places,
    execution: Execution,
    *,
    estimate: Callable[[Wanted], float],
    say: Callable[[str], None],
) -> Account:
    """Train one run `repeats` times, each in a store of its own, and put a row each into the table `noise`.

    Repetitions that are done are not trained again.

    Args:
        wanted: The run.
        repeats: How often, 2 or more.
        places: Folders; the repetitions go below `out/repeats`.
        execution: How.
        estimate: Expected seconds of a run.
        say: Takes lines for the user.
    """
    config, *_ = pin(wanted.config, places)
    identity = run_id(config)
    whole = Account()
    for repeat in range(repeats):
        apart = places.below(f"repeats/{repeat}")
        refresh_run(apart.out, identity)
        say(f"one run with the same seed, repetition {repeat + 1} of {repeats}: {identity}")
        account = carry_out([wanted], apart, execution, estimate=estimate, retry_failed=True, say=say)
        whole.before += account.before
        logs = {key: str(apart.out / "logs" / f"{key}.log") for key in account.results}
        whole.results |= {
            f"{key} ({repeat})": replace(result, log=logs[key]) for key, result in account.results.items()
        }
        whole.seconds += account.seconds
        if account.done:
            row = _row(run_row(run_path(apart.out, identity)), wanted, repeat)
            write_table(places.out / NOISE / f"{identity}-{repeat}.parquet", NOISE, [row])
    return whole


def _row(run: dict[str, Any], wanted: Wanted, repeat: int) -> dict[str, Any]:
    taken = ("run_id", *METRICS, "device", "threads", "finished_at")
    return {"recipe": wanted.recipe, "cell": wanted.cells[0], "repeat": repeat, **{name: run[name] for name in taken}}
