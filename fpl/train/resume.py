"""Everything that resuming needs: taken from a run, checked against it, put back into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fpl.config.identity import canonical, run_id
from fpl.errors import FplError, ShortageError
from fpl.text import shortened
from fpl.train.checkpoint import PartError, load
from fpl.train.evaluate import scores
from fpl.train.owner import OWNER, WIDEST, owner_of
from fpl.train.parts import memory_problem, optimizer_problem, part_problem, ranks_problem, tensors_problem
from fpl.train.runtime import State, restore_rng, rng_state
from fpl.train.state import Memory

if TYPE_CHECKING:
    from fpl.train.loop import Run


def state_of(run: Run) -> State:
    """All parts of a checkpoint; `ranks` holds what differs between the workers."""
    return {
        OWNER: run_id(run.config),
        "canonical": canonical(run.config),
        "method": run.method.state_dict(),
        "optimizers": {name: optimizer.state_dict() for name, optimizer in run.optimizers.items()},
        "ranks": run.workers.gather({"rng": rng_state(run.context.device), "terms": run.terms.state()}),
        "threads": run.options.threads,
        "memory": vars(run.memory),
    }


def check_state(run: Run, state: State) -> None:
    """Compare the parts of a checkpoint with what this run would write; nothing of the run is changed.

    Raises:
        PartError: Names what is missing, is of another shape or type, or holds what no run writes.
    """
    own = canonical(run.config)
    if isinstance(state.get("canonical"), str) and state["canonical"] != own:
        return  # a checkpoint of another run is no reason to look for an older one: `restore` refuses it
    try:
        problem = _problem(run, state)
    except (PartError, ShortageError):
        raise
    except FplError as error:
        raise PartError(error.what, where=error.where) from error
    if problem:
        raise PartError(problem)


def _problem(run: Run, state: State) -> str:
    total, classes = run.config.train.steps, run.config.data.num_classes
    checks: dict[str, Callable[[], str]] = {
        "canonical": lambda: "" if isinstance(state["canonical"], str) else "the part 'canonical' is no text",
        "method": lambda: tensors_problem("method", run.method.state_dict(), state["method"]),
        "optimizers": lambda: _optimizers_problem(run, state["optimizers"]),
        "ranks": lambda: ranks_problem(state["ranks"], run.context.device),
        "threads": lambda: "" if type(state["threads"]) is int else "the part 'threads' is no number",
        "memory": lambda: memory_problem(state["memory"], total, classes) or _best_problem(run, state["memory"]),
    }
    for part in checks:
        if part not in state:
            return f"the checkpoint lacks the part {part!r}"
    if (owner := state.get(OWNER, own := run_id(run.config))) != own:  # those of before do not say it
        return f"the checkpoint is of run {shortened(str(owner), WIDEST)}, and this is run {own}"
    return next(filter(None, (part_problem(part, check) for part, check in checks.items())), "")


def _optimizers_problem(run: Run, saved: State) -> str:
    for name, optimizer in run.optimizers.items():
        if name not in saved:
            return f"the part 'optimizers' lacks {name!r}"
        if problem := optimizer_problem(f"optimizers.{name}", optimizer.state_dict(), saved[name]):
            return problem
    return ""


def _best_problem(run: Run, memory: State) -> str:
    """Whether the best weights that a checkpoint names are there, and are this run's."""
    if not memory["best_step"]:
        return ""
    counted = scores(np.array(memory["best_confusion"]), run.config.eval.absent).miou
    # Later validations are compared with it; another processor may round the mean otherwise.
    if not math.isclose(memory["best_miou"], counted, rel_tol=1e-9):
        return f"best_miou of the part 'memory' is {memory['best_miou']}, and its best_confusion says {counted}"
    best = run.folder.best(memory["best_step"])
    state, words = load(best), f"the best weights that it names, {best.name}, are of"
    if state.get("step") != memory["best_step"]:
        return f"{words} another step"
    own, owner = run_id(run.config), owner_of(state, best)
    return "" if owner == own else f"{words} run {owner}, and this is run {own}"


def restore(run: Run, state: State) -> None:
    """Put a checkpoint that `check_state` has passed into a run that has not begun.

    Raises:
        FplError: It belongs to another configuration.
    """
    if state["canonical"] != canonical(run.config):
        theirs = f", run {shortened(str(state[OWNER]), WIDEST)}" if OWNER in state else ""
        raise FplError(
            f"the checkpoint belongs to another configuration{theirs}; this is run {run_id(run.config)}",
            where=str(run.folder.folder),
            hint="move these files to the folder of their run, or remove this folder, or give the run another --out",
        )
    run.method.load_state_dict(state["method"])
    for name, optimizer in run.optimizers.items():
        optimizer.load_state_dict(state["optimizers"][name])
    run.memory = Memory(**state["memory"])
    before = len(state["ranks"])
    # All ranks draw alike (`seed_training`), so any of them stands for one that is new.
    restore_rng(state["ranks"][0]["rng"], run.context.device)
    if before == run.context.world_size:
        run.terms.restore(state["ranks"][run.context.rank]["terms"], run.context.device)
    notes = []
    if before != run.context.world_size:
        notes.append(f" on {run.context.world_size} workers instead of {before}: same batches, sums round differently")
    elif state["threads"] != run.options.threads:
        notes.append(f" with {run.options.threads} CPU threads instead of {state['threads']}: sums round differently")
    run.progress.note(f"continuing at step {run.memory.step} of {run.config.train.steps}{''.join(notes)}")
