"""What becomes of output that nobody takes: it ends no work."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def prepare_streams() -> None:
    """Let output that cannot be written be lost, and signs that its encoding does not have be question marks.

    That is output of streams that are closed (`2>&-`, a daemon), and of pipes whose reader is gone (`| head`).
    """
    _open_closed_streams()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Not where somebody has put something of his own there.
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
            stream.flush()
            setattr(sys, name, _patient(stream))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _open_closed_streams() -> None:
    """Let streams that were closed lead nowhere, and give their numbers to no file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        # The lowest number that is free, which is the stream's: those below it are taken.
        opened = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(opened, opened == number)
        setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))


def _patient(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream, into nothing from where its reader has gone."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Pipe(io.FileIO):
    def write(self, content: ReadableBuffer, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(content)
