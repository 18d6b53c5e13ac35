"""The one error that a user's input can cause, and its kinds."""

from __future__ import annotations

import errno
from pathlib import Path

_ANOTHER_PLACE = "name another folder (--out), or mend this one; the same command then continues"
_WORDS = {
    errno.ENOSPC: ("no space is left", "make room there, or name another folder; the same command then continues"),
    errno.EDQUOT: ("your quota is used up", "remove files, or name another folder; the same command then continues"),
    errno.EFBIG: ("a file would be larger than is allowed", "raise the limit (ulimit -f), or name another folder"),
    errno.EROFS: ("the file system is read-only", _ANOTHER_PLACE),
    errno.EACCES: ("permission denied", _ANOTHER_PLACE),
    errno.EPERM: ("not permitted", _ANOTHER_PLACE),
    errno.ENOLCK: (
        "the file system gives no locks",
        "mount it with locks (NFS: lockd, Lustre: -o flock), or name a folder on a local disk",
    ),
    errno.EIO: ("input/output error", "the disk or the connection to it is failing; the same command then continues"),
    errno.ESTALE: ("the file server lost this file", "mount it again; the same command then continues"),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n); the same command then continues"),
    errno.ENFILE: ("the machine has too many open files", "wait or close some; the same command then continues"),
}
_MEMORY = (
    "not enough memory",
    "take a smaller data.crop, smaller batches or fewer processes (--loader-workers, --concurrency), or a machine with "
    "more; the same command then continues",
)
_THREADS = (
    "no thread could be started",
    "free memory, or raise the limit of processes (ulimit -u); the same command then continues",
)
# What torch says when the CPU's memory is at an end; its own class it has for GPUs alone.
_TORCH_MEMORY = ("DefaultCPUAllocator", "can't allocate memory", "not enough memory")


class FplError(Exception):
    """Bad input, said in full: what is wrong, where, and what to do about it.

    The command line prints it without a traceback and exits with code 2; in Python it is an ordinary exception.

    Args:
        what: What is wrong, with the value that was given.
        where: File, key or line in which it was found; empty when there is no such place.
        hint: What is allowed, or the command that mends it.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The whole message on as many lines as it has parts."""
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.hint:
            lines.append(f"  -> {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between worker processes: keyword arguments need help to be pickled.
        return (_rebuild, (type(self), self.what, self.where, self.hint))


class ShortageError(FplError):
    """The machine lacks something: room, memory, a right, a lock. What was asked for is in order and can be continued.

    It is no failure of a run, and never recorded as one.
    """


class Interrupted(FplError):  # noqa: N818 - it is no error
    """The user pressed Ctrl-C where that can be made good."""

    exit_code = 130


def shortage(error: BaseException, path: Path | None = None) -> ShortageError | None:
    """What the machine lacked, if an error says that it did; None for every other error.

    Args:
        error: What was caught.
        path: The file that was read or written; None takes what the error names.
    """
    if isinstance(error, ShortageError):
        return error
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or _torch_memory(error):
        what, hint = _MEMORY
        return ShortageError(what, where=str(path or ""), hint=hint)
    if type(error) is RuntimeError and "can't start new thread" in str(error):
        what, hint = _THREADS
        return ShortageError(what, where=str(path or ""), hint=hint)
    if not isinstance(error, OSError) or error.errno not in _WORDS:
        return None
    what, hint = _WORDS[error.errno]
    place = path or (Path(error.filename) if isinstance(error.filename, str) else None)
    where, folder = (str(place), f" in {place.parent}") if place else ("file system", "")
    return ShortageError(f"{what}{folder}", where=where, hint=hint)


def _torch_memory(error: BaseException) -> bool:
    return type(error) is RuntimeError and any(word in str(error) for word in _TORCH_MEMORY)


def file_error(error: OSError, path: Path | None = None) -> FplError:
    """Any error of the file system in words: `shortage`, or the system's own with the name of the file."""
    return (
        shortage(error, path)
        or _in_the_way(error)
        or FplError(error.strerror or str(error), where=str(path or error.filename or "file system"))
    )


def _in_the_way(error: OSError) -> FplError | None:
    # The system names what was looked for below it, or only that something is there.
    if error.errno not in (errno.ENOTDIR, errno.EEXIST) or not isinstance(error.filename, str):
        return None
    place = Path(error.filename)
    found = next((each for each in (place, *place.parents) if each.exists()), None)
    if found is None or found.is_dir():
        return None
    return FplError("is a file, and a folder is needed", where=str(found), hint="name a folder, or remove the file")


def _rebuild(kind: type[FplError], what: str, where: str, hint: str) -> FplError:
    return kind(what, where=where, hint=hint)
