"""The one error that a user's input can cause, and its kinds."""

from __future__ import annotations

import errno
from pathlib import Path

from fpl.text import one_line, shortened

_ANOTHER_PLACE = "name another folder, or mend this one; the same command then continues"
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
# Something else stands where a file or folder has to be: no matter of the machine.
_IN_ITS_PLACE = {
    errno.ELOOP: "links lead to one another, or no link may stand there: remove it",
    errno.EISDIR: "a file has to be there: remove the folder, or name another file",
    errno.ENOTDIR: "a part of this path is no folder: remove it, or name another folder",
    errno.EEXIST: "remove what is there, perhaps a link to nothing",
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
_LIBRARY = (
    "no room in memory for a library",
    "raise the limit of the address space (ulimit -v), or take a machine or a job with more memory; the same command "
    "then continues",
)
# What the loader of shared libraries says then.
_NO_ROOM = ("failed to map segment", "cannot allocate memory")
# What torch says when the CPU's memory is at an end; its own class it has for GPUs alone.
_TORCH_MEMORY = ("DefaultCPUAllocator", "can't allocate memory", "not enough memory")


# What file systems take: bytes of a name, and of a whole path.
LONGEST_NAME, LONGEST_PATH = 255, 4095
# Letters of one that are shown where it is too long.
_SHOWN = 80
NAME_HINT = f"names of files and folders have up to {LONGEST_NAME} bytes and no NUL, whole paths up to {LONGEST_PATH:,}"


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
        lines = [f"{one_line(self.where)}: {self.what}" if self.where else self.what]
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
    if isinstance(error, ImportError) and any(word in str(error).lower() for word in _NO_ROOM):
        what, hint = _LIBRARY
        return ShortageError(f"{what}: {error}", where=str(path or ""), hint=hint)
    if not isinstance(error, OSError) or error.errno not in _WORDS:
        return None
    what, hint = _WORDS[error.errno]
    place = path or (Path(error.filename) if isinstance(error.filename, str) else None)
    where, folder = (str(place), f" in {place.parent}") if place else ("file system", "")
    return ShortageError(f"{what}{folder}", where=where, hint=hint)


def _torch_memory(error: BaseException) -> bool:
    return type(error) is RuntimeError and any(word in str(error) for word in _TORCH_MEMORY)


def name_problem(path: str) -> str:
    """Why no file or folder can have a name, or a path whose parts are names; empty if one can."""
    if "\0" in path:
        return "a name with a NUL character"
    encoded = path.encode("utf-8", "surrogatepass")
    longest = max(map(len, encoded.split(b"/")))
    if longest > LONGEST_NAME:
        return f"a name of {longest:,} bytes, more than {LONGEST_NAME}"
    return f"a path of {len(encoded):,} bytes, more than {LONGEST_PATH:,}" if len(encoded) > LONGEST_PATH else ""


def check_name(path: Path | str, where: str = "") -> None:
    """Refuse a path before the system is asked for it that it could not even look for.

    Args:
        path: The path.
        where: What names it; empty for the path itself.

    Raises:
        FplError: It holds a NUL character, or is too long.
    """
    if problem := name_problem(str(path)):
        raise FplError(problem, where=shortened(where or str(path), _SHOWN), hint=NAME_HINT)


def file_error(error: OSError, path: Path | None = None) -> FplError:
    """Any error of the file system in words: `shortage`, or the system's own with the name of the file."""
    return (
        shortage(error, path)
        or _in_the_way(error)
        or _too_long(error, str(path or error.filename or ""))
        or FplError(
            error.strerror or str(error),
            where=str(path or error.filename or "file system"),
            hint=_IN_ITS_PLACE.get(error.errno or 0, ""),
        )
    )


def _too_long(error: OSError, path: str) -> FplError | None:
    if error.errno != errno.ENAMETOOLONG:
        return None
    # A file system may take less than we know of.
    what = name_problem(path) or f"a name is too long for this file system, {len(path):,} characters"
    return FplError(what, where=shortened(path, _SHOWN), hint=NAME_HINT)


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
