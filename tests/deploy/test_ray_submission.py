"""deploy/ray-job-submit.sh on a real cluster of one machine, with Ray's dashboard, that asks for a token."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import fpl
from fpl import load_results
from fpl.sweep.places import Places
from fpl.sweep.session import ALONE, QUIET
from tests.cli.test_reproduce import SCALE, TABLE
from tests.conftest import RUN
from tests.deploy.commands import DEPLOY, ROOT
from tests.ports import free_ports
from tests.signals import popen
from tests.sweep.ray_support import LOOPBACK, descendants, kill, listened_on

LACKING = [
    name for name in ("aiohttp_cors", "opencensus", "prometheus_client") if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        bool(LACKING), reason=f"Ray's dashboard needs the extra `cluster`: no {', '.join(LACKING)} here"
    ),
]

TOKEN, WRONG = "0123456789abcdef" * 4, "f" * 64
# Seconds for Ray to start, of which it gives its node no more than 30 where the machine is busy; for jobs; tries.
START, JOB, TRIES = 240, 400, 3
# Only in what is uploaded: whoever names it has run that.
UPLOADED = f"{fpl.__version__}+uploaded"


@dataclass
class Head:
    """A running cluster.

    Attributes:
        process: `ray start`, above all others.
        home: Its folder.
        dashboard: Address.
    """

    process: subprocess.Popen[str]
    home: Path
    dashboard: str

    @property
    def pids(self) -> list[int]:
        return [*descendants(self.process.pid), self.process.pid]


def variables(**own: str) -> dict[str, str]:
    """The environment without what a user has set for Ray and for us, with this Python's programs first."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_A", "FPL_"))}
    return kept | QUIET | ALONE | {"PATH": programs, "RAY_AUTH_MODE": "token"} | own


def start(home: Path) -> Head | None:
    """A cluster in that folder, or None where Ray did not start in the time that it gives itself."""
    names = ("port", "dashboard-port", "dashboard-agent-listen-port", "ray-client-server-port")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    options = [f"--{name}={port}" for name, port in ports.items()]
    size = ["--num-cpus=2", "--num-gpus=0", f"--object-store-memory={100 * 2**20}", f"--temp-dir={home}/ray"]
    patience = ("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT")
    said = home / "said"
    with said.open("w") as log:
        process = popen(
            ["ray", "start", "--head", "--block", "--include-dashboard=true", *options, *size],
            env=variables(RAY_AUTH_TOKEN=TOKEN, **dict.fromkeys(patience, str(START))),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    head = Head(process, home, f"http://127.0.0.1:{ports['dashboard-port']}")
    ends = time.monotonic() + START
    while process.poll() is None and time.monotonic() < ends:
        if "Ray runtime started" in said.read_text():
            return head
        time.sleep(0.2)
    code = process.poll()
    stop(head)
    # Whatever else ends it would end it again.
    assert code is None or "timed out during startup" in said.read_text(), said.read_text()
    return None


def stop(head: Head) -> None:
    pids = head.pids
    kill(pids)
    head.process.wait()
    # Of whom the first was the parent, and which this process did not see any more.
    kill([pid for pid, command in descendants(1).items() if str(head.home) in command])


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    # A short name: sockets below it may have 107 characters.
    home = Path(tempfile.mkdtemp(prefix="fpl-", dir="/tmp"))
    try:
        for _ in range(TRIES):
            if (found := start(home)) is not None:
                break
        else:
            raise AssertionError(f"Ray did not start in {TRIES} tries")
        try:
            yield found
        finally:
            stop(found)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is submitted: this package, with tables of its own and with folders that are not to be uploaded."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "fpl", folder / "fpl", ignore=shutil.ignore_patterns("__pycache__"))
    first = folder / "fpl" / "__init__.py"
    first.write_text(first.read_text().replace(f'__version__ = "{fpl.__version__}"', f'__version__ = "{UPLOADED}"'))
    shutil.copy(ROOT / ".gitignore", folder)
    for name, text in (
        *(("experiments/base/synthetic_city_cps.toml", RUN), ("experiments/tables/small.toml", TABLE)),
        ("experiments/scale/little.toml", SCALE),
        *((f"{name}/large", "not to be uploaded") for name in ("runs", "data", "results", "tests", ".git")),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@dataclass
class Submitted:
    """What became of three jobs, submitted at the same time: exit code and output.

    Attributes:
        good: A run of two steps.
        refused: The same with another token.
        failed: A table that there is none of.
        out: Where the runs of `good` are.
        listened: On what the cluster listened meanwhile.
    """

    good: tuple[int, str]
    refused: tuple[int, str]
    failed: tuple[int, str]
    out: Path
    listened: set[str]


@pytest.fixture(scope="module")
def submitted(
    head: Head, checkout: Path, data_places: Places, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submitted]:
    folder = tmp_path_factory.mktemp("submitted")
    out = folder / "a store"
    places = {"FPL_DATA": str(data_places.data_root), "FPL_SPLITS": str(data_places.splits_root)}
    (folder / "token").write_text(TOKEN)
    right = {"RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    jobs: list[tuple[subprocess.Popen[str], Path]] = []

    def submit(name: str, store: Path, **authentication: str) -> None:
        own = variables(RAY_ADDRESS=head.dashboard, FPL_OUT=str(store), **places, **authentication)
        said = folder / f"{len(jobs)}.txt"
        with said.open("w") as log:
            # Of an option that is given twice, the last counts.
            command = [DEPLOY / "ray-job-submit.sh", name, "--scale", "little"]
            jobs.append((popen(command, cwd=checkout, env=own, stdout=log, stderr=subprocess.STDOUT), said))

    try:
        submit("small.fpl.quarter", out, **right)
        submit("small.fpl.quarter", folder / "refused", RAY_AUTH_TOKEN=WRONG)
        submit("smal", folder / "failed", **right)
        listened, ends = set[str](), time.monotonic() + JOB
        while any(process.poll() is None for process, _ in jobs) and time.monotonic() < ends:
            listened |= listened_on(head.pids)
            time.sleep(0.3)
    finally:
        for process, _ in jobs:
            kill([*descendants(process.pid), process.pid])
            process.wait()
    yield Submitted(*((process.returncode, said.read_text()) for process, said in jobs), out, listened)


def test_the_runs_of_a_job_are_in_the_store(submitted: Submitted) -> None:
    code, said = submitted.good
    assert code == 0, said
    # The job's own words are followed to their end.
    assert "0 runs were done before, 1 trained now" in said and "succeeded" in said
    (run,) = load_results(submitted.out).runs.to_dict("records")
    assert (run["loss.kind"], run["train.steps"]) == ("fpl", 2)
    # Neither the job nor its workers had the package that is installed here.
    assert run["fpl_version"] == UPLOADED


def test_what_is_uploaded_is_the_checkout_without_results_and_history(head: Head, submitted: Submitted) -> None:
    assert submitted.good[0] == 0, submitted.good[1]
    # Beside the session's folder there is a link to it.
    (uploaded,) = head.home.glob("ray/session_2*/runtime_resources/working_dir_files/_ray_pkg_*/")
    names = {path.name for path in uploaded.iterdir()}
    assert names >= {"fpl", "experiments"} and names.isdisjoint({"runs", "data", "results", "tests", ".git"})


def test_a_job_that_fails_gives_1(submitted: Submitted) -> None:
    code, said = submitted.failed
    assert code == 1 and "smal" in said and "did you mean" in said, said


def test_another_token_is_refused_and_so_is_none(head: Head, submitted: Submitted) -> None:
    code, said = submitted.refused
    assert code == 1 and "Invalid authentication token" in said, said
    assert not (submitted.out.parent / "refused").exists()
    for token, status in ((None, 401), (WRONG, 403), (TOKEN, 200)):
        assert asked_with(token, f"{head.dashboard}/api/jobs/") == status


def asked_with(token: str | None, url: str) -> int:
    """Status of the answer."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_nothing_listens_on_other_addresses_than_loopback(submitted: Submitted) -> None:
    assert submitted.listened and submitted.listened <= LOOPBACK
