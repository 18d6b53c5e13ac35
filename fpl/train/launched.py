"""What a launcher (`torchrun`, Ray Train) says in the environment about the workers of a run. Imports no torch."""

from __future__ import annotations

import ipaddress
import os
import socket

from fpl.errors import FplError

# The value without a launcher, which is also the least.
LEAST = {"WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0}
# How the workers find one another.
MEETING = ("RANK", "MASTER_ADDR", "MASTER_PORT")
_HINT = "a launcher such as torchrun sets it; without one, unset WORLD_SIZE, LOCAL_WORLD_SIZE, RANK and LOCAL_RANK"


def launch_value(name: str) -> int:
    """One of the numbers in `LEAST`; what is not set is as without a launcher.

    Raises:
        FplError: The variable holds no such number.
    """
    text, least = os.environ.get(name, "").strip(), LEAST[name]
    # -1 is said for "no launcher" where ranks count from 0.
    if not text or (text == "-1" and least == 0):
        return least
    # No machine has numbers of more digits, and Python refuses those of thousands.
    if not (text.isdecimal() and len(text) < 10 and int(text) >= least):
        what = f"is {text[:40]!r}; allowed: a whole number >= {least}"
        raise FplError(what, where=f"environment variable {name}", hint=_HINT)
    return int(text)


def check_launch() -> None:
    """Refuse an environment that holds no numbers where a launcher puts them.

    Raises:
        FplError: Names the variable and what is allowed.
    """
    for name in LEAST:
        launch_value(name)


def check_meeting() -> None:
    """Refuse an environment of several workers by which they could not find one another.

    Raises:
        FplError: A variable is missing, the rank is that of no worker, or the port is none.
    """
    workers = launch_value("WORLD_SIZE")
    for name in MEETING:
        # Rank -1 is said for "no launcher", and so is none.
        if not os.environ.get(name) or (name == "RANK" and os.environ[name].strip() == "-1"):
            what = f"is not set, with WORLD_SIZE={workers}"
            raise FplError(what, where=f"environment variable {name}", hint=_HINT)
    if (rank := launch_value("RANK")) >= workers:
        what = f"is {rank}; allowed: 0 .. WORLD_SIZE - 1 = {workers - 1}"
        raise FplError(what, where="environment variable RANK", hint=_HINT)
    port = os.environ["MASTER_PORT"]
    if not (port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        what = f"is {port[:40]!r}; allowed: a whole number from 1 to 65535"
        raise FplError(what, where="environment variable MASTER_PORT", hint=_HINT)


def loopback_address(host: str) -> str:
    """The loopback device's address, if `host` names it; else nothing.

    A machine's own name says nothing: many know theirs as 127.0.1.1, while other machines find its address in DNS.
    """
    if host.lower() == "localhost":
        return "127.0.0.1"
    try:
        return host if ipaddress.ip_address(host).is_loopback else ""
    except ValueError:
        return ""


def keep_gloo_local(host: str) -> None:
    """Let gloo listen on the loopback device alone, where the first worker's `host` is there: so are all others.

    Otherwise it takes the address of the machine's name. What the environment says already stands.
    """
    devices = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if devices and loopback_address(host):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", devices[0])
