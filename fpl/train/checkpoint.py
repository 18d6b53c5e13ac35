"""Checkpoints on disk: atomic, two kept, and one that cannot be trusted never in the way."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from fpl.errors import FplError, ShortageError, file_error, shortage
from fpl.files import check_regular, damaged_member, move, remove, remove_left_overs, write_atomic
from fpl.mirrors import came_damaged
from fpl.models.foreign import seems
from fpl.models.pickled import inside
from fpl.text import answer, enumerate_briefly, first_line

KEEP = 2
# Numbers of the system's errors that a damaged file can cause (places in it that it does not have), or what is no file:
# a folder, a link to itself, a path that cannot be one.
_OF_CONTENT = (None, errno.EINVAL, errno.EOVERFLOW, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
# Under this key a file lists its own parts.
PARTS = "parts"


class PartError(FplError):
    """A checkpoint that reads back lacks a part of what was written, or of what the run needs, or has a wrong one."""


class CheckpointFolder:
    """The checkpoints of one run.

    `step_00000040.pt` holds everything that resuming needs, `best_00000030.pt` the weights that were the best then. The
    last two step files are kept until the run is done, so that one can stand in for the other, and with each the best
    weights it knows of: a file of weights belongs to a step file by its number, and the two never tell different
    stories. A run that is done has `best.pt` and `last.pt`, for evaluation and prediction.

    Args:
        folder: Where the files lie; made when the first one is written.
        say: Takes one line for the user.
    """

    def __init__(self, folder: Path, say: Any = answer) -> None:
        self.folder = folder
        self.say = say

    def save_step(self, step: int, state: dict[str, Any]) -> Path:
        """Write a resumable checkpoint and drop those that are no longer needed."""
        path = self.folder / f"step_{step:08d}.pt"
        save(path, state)
        for old in self.steps()[:-KEEP]:
            remove(old)
        oldest = number_of(self.steps()[0])
        # The newest of these is the best that the oldest step file knows of.
        for best in [best for best in self.bests() if number_of(best) <= oldest][:-1]:
            remove(best)
        return path

    def steps(self) -> list[Path]:
        """Step files from oldest to newest."""
        return self._files("step")

    def bests(self) -> list[Path]:
        """Files of the weights that were the best at a step, from oldest to newest; none when the run is done."""
        return self._files("best")

    def _files(self, kind: str) -> list[Path]:
        try:
            # A user's copies, such as `best_copy.pt`, are none of ours.
            found = [path for path in self.folder.iterdir() if path.match(f"{kind}_*.pt") and number_of(path) >= 0]
        except FileNotFoundError:
            return []
        except OSError as error:
            # No list is not an empty one: with that the run would begin again.
            raise file_error(error, self.folder) from error
        return sorted(found)

    def latest(self, check: Callable[[dict[str, Any]], None] = lambda state: None) -> dict[str, Any] | None:
        """The newest checkpoint that can be trusted; others are named and passed over.

        Args:
            check: Raises `FplError` for a state that lacks something.

        Raises:
            PartError: Parts are missing or wrong, and there is no older checkpoint to continue from.
            ShortageError: The system does not let one be read.
        """
        paths, lacking = self.steps(), None
        while paths:
            path = paths.pop()
            try:
                state = load(path)
                check(state)
                _check_step(path, state)
                return state
            except FplError as error:
                if (lack := shortage(error)) is not None:
                    raise lack from error
                if isinstance(error, PartError) and lacking is None:
                    hint = f"remove {self.folder} to start the run again from step 0"
                    lacking = PartError(error.what, where=error.where or str(path), hint=hint)
                words = f"{error.where or path}: {error.what}"
            if paths or lacking is None:
                instead = "continuing from the checkpoint before it" if paths else "starting again from step 0"
                self.say(f"warning: {words}\n  -> {instead}")
        if lacking is not None:
            raise lacking
        return None

    def best(self, step: int) -> Path:
        """File of the weights that became the best at a step."""
        return self.folder / f"best_{step:08d}.pt"

    def weights(self, choice: str) -> Path:
        """The file of the `best` or the `last` weights; of a run that is not done, the best so far."""
        so_far = self.bests() if choice == "best" else []
        return so_far[-1] if so_far else self.folder / f"{choice}.pt"

    def sweep(self) -> None:
        """Remove what killed writers left behind; only for the process that holds the run's lock."""
        remove_left_overs(self.folder)

    def forget_after(self, step: int) -> None:
        """Remove files of a future that was lost: a run that continues at a step does not know of them."""
        for path in [*self.steps(), *self.bests()]:
            if number_of(path) > step:
                remove(path)

    def finish(self) -> None:
        """Keep of a finished run, whose row is on disk, its best and last weights alone."""
        bests = self.bests()
        if bests:
            move(bests.pop(), self.folder / "best.pt")
        for path in [*bests, *self.steps()]:
            remove(path)


def number_of(path: Path) -> int:
    """The step in the name of a file; -1 for a name that is none of ours."""
    found = re.fullmatch(r"(?:step|best)_([0-9]{8,})", path.stem)
    return int(found[1]) if found else -1


def _check_step(path: Path, state: Mapping[str, Any]) -> None:
    """Refuse a step file of another step than its name says: what comes after that step would be removed."""
    memory = state.get("memory")
    step = memory.get("step") if isinstance(memory, Mapping) else None
    if isinstance(step, int) and step != number_of(path):
        what = f"the part 'memory' is of step {step}, the name of the file of step {number_of(path)}"
        raise PartError(what, where=str(path))


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state atomically, with a list of its parts."""
    write_atomic(path, lambda file: torch.save({**state, PARTS: inventory(state)}, file))


def load(path: Path, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a state that `save` wrote, checking every byte of it first, and that nothing has been taken out.

    Raises:
        FplError: The file is missing, truncated or damaged; a `PartError` where parts are missing or are not whole; a
            `ShortageError` where the system does not let it be read: it may be as good as any.
    """
    try:
        return _load(path, device)
    except ShortageError:
        raise
    except FplError:
        if not came_damaged(path):
            raise
        return _load(path, device)


def _load(path: Path, device: torch.device | str) -> dict[str, Any]:
    check_regular(path)
    try:
        if (damaged := damaged_member(path)) is not None:
            raise FplError(f"checkpoint is damaged: {damaged} fails its checksum", where=str(path))
        state = torch.load(path, map_location=device, weights_only=True)
    except FplError:
        raise
    except FileNotFoundError:
        hint = (
            "another of the run may be there (--choice last); to have it again, remove the run's file in runs/: the "
            "same command trains it again"
        )
        raise FplError("no such checkpoint", where=str(path), hint=hint) from None
    except Exception as error:  # a damaged file can raise anything: zip, zlib, pickle, unicode and runtime errors
        if (lack := _lack(error, path)) is not None:
            raise lack from error
        raise _unreadable(path, error) from error
    if not isinstance(state, dict):
        raise FplError(f"holds a {type(state).__name__}, no checkpoint", where=str(path))
    listed = state.pop(PARTS, None)
    try:
        problem = _differs(listed, inventory(state))
    except RecursionError:
        problem = "has a part of too many lists inside lists: this suite has not written it so"
    if problem:
        raise PartError(problem, where=str(path))
    return state


def _unreadable(path: Path, error: Exception) -> FplError:
    (kind, hint), (_, classes) = seems(path), inside(path)
    objects = f"it holds objects ({enumerate_briefly(classes, 3)}) that could run code, which no run writes"
    reason = f"it {kind}" if kind else objects if classes else first_line(error)
    return FplError(f"checkpoint cannot be read: {reason}", where=str(path), hint=hint)


def _lack(error: Exception, path: Path) -> ShortageError | None:
    """What the system says when it does not let a file be read; None for what a damaged file raises."""
    if not isinstance(error, OSError):
        return shortage(error, path) if isinstance(error, MemoryError) else None
    if error.errno in _OF_CONTENT:
        return None
    hint = "mend its permissions, or the disk; the same command then continues"
    return shortage(error, path) or ShortageError(error.strerror or first_line(error), where=str(path), hint=hint)


def inventory(state: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of each part of a state the number of its entries, and 16 hex digits over their names, types and shapes."""
    found = {}
    for name, part in state.items():
        entries = list(leaves(part))
        digest = hashlib.sha256("\n".join(f"{path}\t{kind}" for path, kind in entries).encode("utf-8", "replace"))
        found[str(name)] = [len(entries), digest.hexdigest()[:16]]
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Names and types of everything in nested tables and lists; of tensors also the shape."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}.{number}" if path else str(number))
    elif isinstance(value, torch.Tensor):
        # Of a nested one there is no shape.
        yield path, f"{value.dtype}{'nested' if value.is_nested else list(value.shape)}"
    else:
        yield path, type(value).__name__


def _differs(listed: Any, found: Mapping[str, list[Any]]) -> str:
    """In what the parts found are not those listed; empty if they are the same."""
    if not isinstance(listed, dict) or not listed or not all(map(_is_entry, listed.values())):
        return f"has no list of its parts ({', '.join(found) or 'it is empty'}): this suite has not written it so"
    for name, wanted in listed.items():
        if name not in found:
            return f"lacks the part {name!r}"
        if found[name] != wanted:
            counts = f"{found[name][0]} entries instead of {wanted[0]}"
            return f"the part {name!r} has {counts if found[name][0] != wanted[0] else 'other entries than written'}"
    if foreign := [name for name in found if name not in listed]:
        return f"has the part {foreign[0]!r}, which is not in the list of its parts"
    return ""


def _is_entry(value: Any) -> bool:
    return isinstance(value, list) and [type(each) for each in value] == [int, str]
