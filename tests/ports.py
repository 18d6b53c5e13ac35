"""Ports that are free when they are drawn, and still when they are used."""

from __future__ import annotations

import contextlib
import random
import socket

# Above Ray's own for workers, and below those that the system hands out by itself for every connection (from 32768 on).
RANGE = (20000, 32768)


def free_ports(count: int) -> list[int]:
    """Different ones, on the loopback device."""
    # Not those of another test process, whatever the generator of the tests was set to.
    draw = random.SystemRandom()
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            each, port = held.enter_context(socket.socket()), draw.randrange(*RANGE)
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
        return found
