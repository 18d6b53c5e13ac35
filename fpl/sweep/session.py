"""Connected to Ray: to a cluster that runs already, or to a Ray that is started on this machine and ends with us.

Importing this module does not import Ray.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fpl.data.parallel import core_count
from fpl.errors import FplError, ShortageError
from fpl.interrupt import interrupt_main, terminated_like_interrupted
from fpl.sweep.cluster import Cluster
from fpl.text import first_line, say

# Jobs, reports and verdicts are small; images never pass through Ray.
OBJECT_STORE_BYTES = 128 * 2**20
# One token per process: Ray keeps the first that it has seen.
TOKEN = secrets.token_hex(32)
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Relative paths stay what the user meant.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
# Ray listens on the loopback device alone where there is no cluster of several machines. Whatever its name says, the
# variable is heeded by every system.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# Seconds between two looks at Ray's own processes, and for this one to end by itself after one of them died.
WATCH, FAREWELL = 0.05, 20.0
# Seconds for processes that were told to end.
LAST_WORDS = 5.0
# Names of sockets below Ray's folder may have 107 characters in all.
LONGEST_FOLDER = 32


@contextlib.contextmanager
def ray_session(address: str | None, *, cpus: float | None = None) -> Iterator[Cluster]:
    """Connect to Ray, or start it on this machine; on leaving, end only what was started and restore the environment.

    As long as it lasts, SIGTERM ends the main thread as Ctrl-C does.

    Args:
        address: Of a running cluster (`auto`, `10.0.0.1:6379`); None: the one that RAY_ADDRESS names, as in a job that
            was submitted to a cluster, else start Ray here, for this user and this machine alone.
        cpus: CPUs of a Ray started here; None: as many as this process may use.

    Raises:
        FplError: No cluster answers at the address.
        ShortageError: Ray did not start here, or one of its own processes died.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    with environment({**QUIET, **({} if address else {**ALONE, **authentication()})}):
        import ray

        if ray.is_initialized():
            yield Cluster(shared=address is not None)
            return
        # Ray reads how to authenticate when it is imported, which may have been before.
        ray._raylet.Config.initialize("")
        quiet: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
        with contextlib.ExitStack() as held:
            # Twice: Ray puts a handler of its own there, which prints a stack and aborts, and leaves it behind.
            held.enter_context(terminated_like_interrupted())
            if address is None:
                held.enter_context(_own_ray(cpus or core_count(), quiet))
            else:
                _connect(address, quiet)
                held.callback(ray.shutdown)
            held.enter_context(terminated_like_interrupted())
            yield Cluster(shared=address is not None)


@contextlib.contextmanager
def _own_ray(cpus: float, quiet: Mapping[str, Any]) -> Iterator[None]:
    """Ray on this machine, in a folder that only this user may enter."""
    import ray

    home = Path(tempfile.mkdtemp(prefix="fpl-", dir=_short_folder()))
    # Ray opens its own folder to everybody; the one around it stays closed.
    here = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE_BYTES}
    try:
        _listen_here_alone()
        ray.init(address="local", include_dashboard=False, _temp_dir=str(home / "ray"), **here, **quiet)
    except Exception as error:  # of a bare kind where it took too long
        raise ShortageError(
            f"Ray did not start: {first_line(error)}",
            where=str(home),
            hint="the machine may be too busy or short of memory: the same command tries again; --local does without "
            f"Ray; {home}/ray/session_latest/logs may say more",
        ) from None
    with _watched(home):
        yield


def _listen_here_alone() -> None:
    """Tell a Ray that was imported before its environment was set."""
    from ray._private import ray_constants

    if os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == "0":
        ray_constants.ENABLE_RAY_CLUSTER = False


def _short_folder() -> str:
    folder = tempfile.gettempdir()
    return folder if len(folder) <= LONGEST_FOLDER else "/tmp"


@contextlib.contextmanager
def _watched(home: Path) -> Iterator[None]:
    """End the session when one of Ray's own processes dies: Ray itself would wait for ever, or exit with code 1.

    Raises:
        ShortageError: One of them died.
    """
    import ray

    node = ray._private.worker._global_node
    own = {"raylet": "raylet", "gcs_server": "global control store (gcs_server)"}
    processes = {name: node.all_processes[name][0].process for name in own if node.all_processes.get(name)}
    leaving, over, lost = threading.Event(), threading.Event(), list[str]()

    def watch() -> None:
        while not leaving.wait(WATCH):
            if dead := [own[name] for name, process in processes.items() if process.poll() is not None]:
                lost.extend(dead)
                interrupt_main()
                if not over.wait(FAREWELL):
                    _leave(_loss(lost[0], home))
                return

    thread = threading.Thread(target=watch, name="ray-watch", daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        # Whatever fails once Ray is gone fails for that reason.
        if lost:
            raise _loss(lost[0], home) from error
        raise
    finally:
        leaving.set()  # from here on their end is wanted
        try:
            ray.shutdown()
        finally:
            over.set()
        if not lost:  # then its logs may say why
            _remove(home)


def _remove(folder: Path) -> None:
    """Remove it from under processes that have been told to end and may still write there."""
    ends = time.monotonic() + LAST_WORDS
    while folder.exists() and time.monotonic() < ends:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(WATCH)


def _loss(name: str, home: Path) -> ShortageError:
    return ShortageError(
        f"Ray's {name} died, killed or out of memory",
        where=f"{home}/ray/session_latest/logs",
        hint="nothing is lost: the same command continues from the last checkpoints",
    )


def _leave(error: FplError) -> NoReturn:
    """The main thread is stuck in what is gone."""
    say(f"error: {error.message}")
    os._exit(error.exit_code)


def _connect(address: str, quiet: Mapping[str, Any]) -> None:
    import ray

    hint = (
        "start one with `ray start --head`; if it asks for a token, set RAY_AUTH_MODE=token and the token here too, "
        "otherwise RAY_AUTH_MODE=disabled"
    )
    try:
        if address != "auto":
            _knock(address)
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise FplError(f"no Ray cluster answers: {first_line(error)}", where=address, hint=hint) from None


def _knock(address: str) -> None:
    """Ray itself would knock for minutes where nobody listens."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ValueError("an address is HOST:PORT, or auto")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=5):
        pass


def authentication() -> dict[str, str]:
    """Settings under which only this process and its children can talk to a Ray that it starts; the user's go first."""
    if "RAY_AUTH_MODE" in os.environ:
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN", TOKEN)}


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and put everything back afterwards."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
