"""Everything that resuming needs: taken from a run, checked against it, put back into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from fpl.config.identity import canonical
from fpl.errors import FplError, ShortageError
from fpl.text import first_line
from fpl.train.checkpoint import PartError, load
from fpl.train.runtime import State, restore_rng, rng_state
from fpl.train.state import Memory

if TYPE_CHECKING:
    from fpl.train.loop import Run


def state_of(run: Run) -> State:
    """All parts of a checkpoint; `ranks` holds what differs between the workers."""
    return {
        "canonical": canonical(run.config),
        "method": run.method.state_dict(),
        "optimizers": {name: optimizer.state_dict() for name, optimizer in run.optimizers.items()},
        "ranks": run.workers.gather({"rng": rng_state(run.context.device), "terms": run.terms.state()}),
        "threads": run.options.threads,
        "memory": vars(run.memory),
    }


def check_state(run: Run, state: State) -> None:
    """Compare the parts of a checkpoint with what this run would write.

    Raises:
        PartError: Names what is missing, or is of another shape or type.
    """
    if state.get("canonical", canonical(run.config)) != canonical(run.config):
        return  # a checkpoint of another run is no reason to look for an older one: `restore` refuses it
    try:
        problem = _problem(run, state)
    except (PartError, ShortageError):
        raise
    except FplError as error:
        raise PartError(error.what, where=error.where) from error
    except Exception as error:  # parts may hold anything
        problem = f"its parts are not what a run writes ({type(error).__name__}: {first_line(error)})"
    if problem:
        raise PartError(problem)


def _problem(run: Run, state: State) -> str:
    for part in ("canonical", "method", "optimizers", "ranks", "threads", "memory"):
        if part not in state:
            return f"the checkpoint lacks the part {part!r}"
    if problem := tensors_problem("method", run.method.state_dict(), state["method"]):
        return problem
    for name, optimizer in run.optimizers.items():
        if name not in state["optimizers"]:
            return f"the part 'optimizers' lacks {name!r}"
        saved, own, where = state["optimizers"][name], optimizer.state_dict(), f"optimizers.{name}"
        if len(saved["param_groups"]) != len(own["param_groups"]):
            return f"{where} has {len(saved['param_groups'])} parameter groups instead of {len(own['param_groups'])}"
        if problem := tensors_problem(where, _flat(own["state"]), _flat(saved["state"])):
            return problem
    if not state["ranks"]:
        return "the part 'ranks' is empty"
    own_rng = {"cpu": torch.get_rng_state()}
    for number, rank in enumerate(state["ranks"]):
        if lacking := [key for key in ("rng", "terms") if not rank.get(key)]:
            return f"the part 'ranks' lacks {lacking[0]!r} of rank {number}"
        if problem := tensors_problem(f"ranks.{number}.rng", own_rng, {"cpu": rank["rng"].get("cpu")}):
            return problem
    if lacking := sorted(vars(Memory()).keys() ^ state["memory"].keys()):
        return f"the part 'memory' differs in {', '.join(lacking)}"
    for name, most in (("step", run.config.train.steps), ("best_step", state["memory"]["step"])):
        if not 0 <= state["memory"][name] <= most:
            return f"{name} of the part 'memory' is {state['memory'][name]}, not between 0 and {most}"
    if not isinstance(state["threads"], int):
        return "the part 'threads' is no number"
    if state["memory"]["best_step"]:
        best = run.folder.best(state["memory"]["best_step"])
        if load(best).get("step") != state["memory"]["best_step"]:
            return f"the best weights that it names, {best.name}, are of another step"
    return ""


def tensors_problem(part: str, own: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """Which tensors of a part a checkpoint lacks, or has in another shape or type; empty if all are there."""
    if lacking := [name for name in own if name not in saved]:
        return f"the part {part!r} lacks {len(lacking)} of {len(own)} entries: {_first(lacking)}"
    if foreign := [name for name in saved if own and name not in own]:
        return f"the part {part!r} has {len(foreign)} entries that this run has not: {_first(foreign)}"
    for name, value in own.items():
        other = saved[name]
        if isinstance(value, torch.Tensor) != isinstance(other, torch.Tensor):
            return f"{name} of the part {part!r} is a {type(other).__name__}"
        if not isinstance(value, torch.Tensor):
            continue
        # Loading would cast it, and say nothing of what that lost.
        for own_kind, kind in ((value.dtype, other.dtype), (value.layout, other.layout)):
            if own_kind != kind:
                return f"{name} of the part {part!r} is {_kind(kind)} instead of {_kind(own_kind)}"
        # An empty tensor of a fresh method is one whose size the images decide.
        if value.numel() and value.shape != other.shape:
            return f"{name} of the part {part!r} is {list(other.shape)} instead of {list(value.shape)}"
    return ""


def _kind(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")


def _flat(state: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{parameter}.{name}": value for parameter, each in state.items() for name, value in each.items()}


def _first(names: list[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def restore(run: Run, state: State) -> None:
    """Put a checkpoint that `check_state` has passed into a run that has not begun.

    Raises:
        FplError: It belongs to another configuration.
    """
    if state["canonical"] != canonical(run.config):
        raise FplError(
            "the checkpoint belongs to another configuration",
            where=str(run.folder.folder),
            hint="give the run another --out, or remove this folder",
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
