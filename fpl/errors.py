"""The one error that a user's input can cause."""

from __future__ import annotations


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


class Interrupted(FplError):  # noqa: N818 - it is no error
    """The user pressed Ctrl-C where that can be made good."""

    exit_code = 130


def _rebuild(kind: type[FplError], what: str, where: str, hint: str) -> FplError:
    return kind(what, where=where, hint=hint)
