"""A Ray started here: who can reach it, and how the session ends when Ray dies or we are told to.

Each session is a process of its own, which says what it sees and then waits, as a driver does while runs are at work.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpl.errors import FplError
from fpl.sweep import session
from tests.signals import popen
from tests.sweep.ray_support import LOOPBACK, descendants, kill, listened_on, wait_until

pytestmark = pytest.mark.ray

MARK = "ray is in "
DRIVER = """
import sys, time
import ray
from fpl.cli.data import interruptible
from fpl.errors import FplError
from fpl.sweep.session import ray_session

try:
    with interruptible("go on"), ray_session(None, cpus=1):
        work = ray.remote(lambda: time.sleep(600)).remote()
        print("ray is in", ray._private.worker._global_node.get_temp_dir_path(), flush=True)
        ray.get(work)
except FplError as error:
    print(error.message)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def driver() -> Iterator[Callable[[], tuple[subprocess.Popen[str], Path]]]:
    started, homes = [], []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.append(process)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            # Marked, for an error of a Ray that does not start begins with a path too, and what follows is removed.
            if line.startswith(MARK):
                folder = Path(line.removeprefix(MARK).strip())
                assert folder.parent.name.startswith("fpl-")
                homes.append(folder.parent)
                return process, folder
        raise AssertionError("".join(lines))

    yield start
    for process in started:
        kill([*descendants(process.pid), process.pid])
        process.wait()
    for home in homes:  # kept where one of Ray's processes died
        shutil.rmtree(home, ignore_errors=True)


def named(pid: int, name: str) -> int:
    return next(child for child, command in descendants(pid).items() if name in command.split(" ")[0])


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_the_death_of_rays_own_process_ends_the_session_in_words(
    driver: Callable[[], tuple[subprocess.Popen[str], Path]], name: str
) -> None:
    process, folder = driver()
    kill([named(process.pid, name)])
    printed = process.communicate()[0]
    assert process.returncode == 2, printed
    assert f"{folder}/session_latest/logs: Ray's" in printed and name in printed and "died" in printed
    assert "the same command continues from the last checkpoints" in printed
    assert "Traceback" not in printed
    assert (folder / "session_latest" / "logs").is_dir()  # may say why


def test_only_this_user_on_this_machine_reaches_it_and_sigterm_ends_it_like_ctrl_c(
    driver: Callable[[], tuple[subprocess.Popen[str], Path]],
) -> None:
    process, folder = driver()
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert folder.parent.stat().st_uid == os.getuid()
    children = descendants(process.pid)
    addresses = listened_on({*children, process.pid})
    assert addresses and addresses <= LOOPBACK
    process.send_signal(signal.SIGTERM)
    printed = process.communicate()[0]
    assert (process.returncode, printed) == (130, "stopped\n  -> go on\n")
    assert not folder.parent.exists()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 60)


def test_a_ray_that_does_not_start_is_said_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import ray

    def slow(**options: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray leaves a handler of its own behind
        raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", slow)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(session, "LONGEST_FOLDER", 1000)
    before = signal.getsignal(signal.SIGTERM)
    with (
        pytest.raises(FplError, match="Ray did not start: The current node timed out") as caught,
        session.ray_session(None),
    ):
        pass
    assert "the same command tries again" in caught.value.hint and caught.value.where.startswith(str(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before
