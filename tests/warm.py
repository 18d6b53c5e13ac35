"""Python processes that need not import torch and our packages first: forked from a server that did nothing else.

What tests want of a process of its own is that it can be killed, and that its peers share no memory with it.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.warm_imports"])


class Child:
    """`python ARGUMENTS`, where these are `-m MODULE ...` or `SCRIPT ...`. What it prints goes to files."""

    def __init__(self, arguments: Sequence[str | Path], environment: Mapping[str, str] = os.environ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._printed = [Path(self._folder.name, name) for name in ("stdout", "stderr")]
        for path in self._printed:
            path.touch()
        target = (list(map(str, arguments)), dict(environment), *map(str, self._printed))
        self._process = _CONTEXT.Process(target=_run, args=target)
        self._process.start()

    @property
    def code(self) -> int | None:
        """Exit code, the negative number of the signal that ended it, or None while it is at work."""
        return self._process.exitcode

    def kill(self) -> None:
        """End it at once, as the system would that has no memory left."""
        self._process.kill()
        self._process.join()

    def wait(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, once it has ended."""
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        out, err = (path.read_text() for path in self._printed)
        return code, out, err


def run(arguments: Sequence[str | Path], environment: Mapping[str, str] = os.environ) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `python ARGUMENTS`."""
    return Child(arguments, environment).wait()


def run_together(
    lines: Sequence[Sequence[str | Path]], environments: Sequence[Mapping[str, str]]
) -> list[tuple[int, str, str]]:
    """What `run` gives, of processes that work at the same time."""
    children = [Child(*each) for each in zip(lines, environments, strict=True)]
    try:
        return [child.wait() for child in children]
    finally:
        for child in children:
            child.kill()


def _run(arguments: list[str], environment: dict[str, str], stdout: str, stderr: str) -> None:
    for number, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY), number)
    os.environ.clear()
    os.environ.update(environment)
    module = arguments[0] == "-m"
    sys.argv = arguments[1:] if module else arguments
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
