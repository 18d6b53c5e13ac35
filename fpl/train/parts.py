"""What each part of a checkpoint must hold for a run to go on with it, or for a network to predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from fpl.errors import FplError, shortage
from fpl.models.weights_check import oddity
from fpl.text import enumerate_briefly, first_line
from fpl.train.state import Memory

# Of an optimizer's groups: the rate is set at every step, the kernel is up to this process. All else follows from the
# configuration, and of that these must be there: other keys come and go with torch's versions.
FREE = ("lr", "fused")
NEEDED = ("params", "momentum", "dampening", "weight_decay", "nesterov", "betas", "eps", "amsgrad")


def part_problem(part: str, find: Callable[[], str]) -> str:
    """What `find` says is wrong with a part, which may hold anything: also what made it stumble."""
    try:
        return find()
    except FplError:
        raise
    except Exception as error:
        if (lack := shortage(error)) is not None:
            raise lack from error
        return f"the part {part!r} is not what a run writes ({type(error).__name__}: {first_line(error)})"


def tensors_problem(part: str, own: Mapping[str, Any], saved: Any) -> str:
    """Which tensors of a part a checkpoint lacks, or has in another shape or type or with impossible values.

    Returns:
        An empty text if all are there.
    """
    if not isinstance(saved, Mapping):
        return f"the part {part!r} is a {type(saved).__name__}, no table of tensors"
    if lacking := [name for name in own if name not in saved]:
        return f"the part {part!r} lacks {len(lacking)} of {len(own)} entries: {enumerate_briefly(lacking, 3)}"
    if foreign := [name for name in saved if own and name not in own]:
        return f"the part {part!r} has {len(foreign)} entries that this run has not: {enumerate_briefly(foreign, 3)}"
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
        if odd := oddity(other):
            return f"{name} of the part {part!r} {odd}"
        # An empty tensor of a fresh method is one whose size the images decide.
        if value.numel() and value.shape != other.shape:
            return f"{name} of the part {part!r} is {list(other.shape)} instead of {list(value.shape)}"
    return _values_problem(part, {name: value for name, value in saved.items() if isinstance(value, torch.Tensor)})


def _values_problem(part: str, tensors: Mapping[str, torch.Tensor]) -> str:
    numbers = {name: value for name, value in tensors.items() if value.is_floating_point()}
    bad = [name for name, value in numbers.items() if not bool(value.isfinite().all())]
    if bad:
        return f"{len(bad)} tensors of the part {part!r} hold values that are not finite, the first is {bad[0]}"
    # Roots are taken of these. Of a channel that is always the same it may be 0.
    squares = [name for name in numbers if name.endswith(("running_var", "exp_avg_sq"))]
    bad = [name for name in squares if bool((numbers[name] < 0).any())]
    return f"{len(bad)} tensors of the part {part!r} hold variances below 0, the first is {bad[0]}" if bad else ""


def optimizer_problem(part: str, own: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """In what the state of an optimizer is not one of this run's."""
    groups, own_groups = saved["param_groups"], own["param_groups"]
    if len(groups) != len(own_groups):
        return f"{part} has {len(groups)} parameter groups instead of {len(own_groups)}"
    for number, (group, known) in enumerate(zip(groups, own_groups, strict=True)):
        if lacking := [key for key in NEEDED if key in known and key not in group]:
            return f"parameter group {number} of {part} lacks {enumerate_briefly(lacking, 3)}"
        if differing := [key for key in known.keys() & group.keys() if key not in FREE and group[key] != known[key]]:
            return (
                f"parameter group {number} of {part} has other values than this run: {enumerate_briefly(differing, 3)}"
            )
    return tensors_problem(part, _flat(own["state"]), _flat(saved["state"]))


def ranks_problem(ranks: Sequence[Mapping[str, Any]], device: torch.device) -> str:
    """What is wrong with the random states and the terms of the workers."""
    if not ranks:
        return "the part 'ranks' is empty"
    for number, rank in enumerate(ranks):
        if lacking := [key for key in ("rng", "terms") if not rank.get(key)]:
            return f"the part 'ranks' lacks {lacking[0]!r} of rank {number}"
        random = rank["rng"]
        if problem := tensors_problem(f"ranks.{number}.rng", {"cpu": torch.get_rng_state()}, random):
            return problem
        # Whether it is a state only a generator can tell; nobody draws from these.
        torch.Generator("cpu").set_state(random["cpu"])
        if device.type in random:
            torch.Generator(device).set_state(random[device.type])
        if problem := _terms_problem(f"ranks.{number}.terms", rank["terms"]):
            return problem
    return ""


def _terms_problem(part: str, terms: Mapping[str, Any]) -> str:
    steps, rows = terms["steps"], terms["rows"]
    if not all(type(number) is int for number in [*steps, terms["silent"]]) or len(steps) != len(rows):
        return f"the part {part!r} does not have the terms of each of its steps"
    for row in rows:
        if not row or row.keys() != rows[0].keys():
            return f"the part {part!r} has other terms at some steps"
        if problem := tensors_problem(part, {name: torch.zeros(()) for name in row}, row):
            return problem
    return ""


def memory_problem(memory: Mapping[str, Any], total: int, classes: int) -> str:
    """What is wrong with the memory of a run of `total` steps."""
    if differing := sorted(vars(Memory()).keys() ^ memory.keys()):
        return f"the part 'memory' differs in {', '.join(differing)}"
    for name, kind in get_type_hints(Memory).items():
        try:
            TypeAdapter(kind).validate_python(memory[name], strict=True)
        except ValidationError as error:
            return f"{name} of the part 'memory' is not what a run writes: {error.errors()[0]['msg']}"
    for name, most in (("step", total), ("best_step", memory["step"])):
        if not 0 <= memory[name] <= most:
            return f"{name} of the part 'memory' is {memory[name]}, not between 0 and {most}"
    if not 0 <= memory["seconds"] < float("inf"):
        return f"seconds of the part 'memory' is {memory['seconds']}, no time"
    for name in ("best_confusion", "last_confusion"):
        counts = memory[name]
        if (counts is None) != (memory["best_step"] == 0):
            return f"{name} of the part 'memory' does not go with best_step {memory['best_step']}"
        if counts is not None and (np.shape(counts) != (classes, classes) or np.min(counts) < 0):
            return f"{name} of the part 'memory' is not the counts of {classes} classes"
    for name in ("history", "fuzziness", "examples"):
        if not all(type(row.get("step")) is int for row in memory[name]):
            return f"{name} of the part 'memory' has a row without its step"
    if any(oddity(row.get("array")) for row in memory["examples"]):
        return "examples of the part 'memory' has a row without its picture"
    return ""


def _kind(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")


def _flat(state: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{parameter!r}.{name}": value for parameter, each in state.items() for name, value in each.items()}
