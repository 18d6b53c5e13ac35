"""The scripts for Slurm and `ray job submit`: run with stand-ins for the programs that they call."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.commands import DEPLOY, check_command

SCRIPTS = ("slurm.sbatch", "ray-job-submit.sh")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_no_syntax_error_and_can_be_executed(name: str) -> None:
    subprocess.run(["bash", "-n", str(DEPLOY / name)], check=True)
    text = (DEPLOY / name).read_text()
    assert os.access(DEPLOY / name, os.X_OK) and text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text


def test_no_file_names_a_registry() -> None:
    for path in DEPLOY.iterdir():
        assert not re.search(r"docker\.io|quay\.io|ghcr\.io|gcr\.io|nvcr\.io|rayproject/", path.read_text()), path


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """Programs that write down how they were called, one argument a line."""
    folder = tmp_path / "bin"
    for each in (folder, folder / "calls"):
        each.mkdir()
    write = 'printf "%s\\n" "$@" > "$CALLS/$(basename "$0")"; env > "$CALLS/$(basename "$0").env"; exit "${CODE:-0}"'
    programs = {
        "ray": write,
        "scontrol": "printf 'first\\nsecond\\n'",
        # What a step would run on the nodes: the question for an address, or Ray itself.
        "srun": 'echo "$*" > "$CALLS/srun"; while [[ "$1" == --* ]]; do shift; done; "$@"',
        "hostname": "echo '10.0.0.7 172.17.0.1'",
    }
    for name, body in programs.items():
        path = folder / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    return folder


def run_script(name: str, stand_ins: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "FPL_", "SLURM_"))}
    own = {"PATH": f"{stand_ins}:{os.environ['PATH']}", "CALLS": str(stand_ins / "calls"), "HOME": str(stand_ins)}
    return subprocess.run(
        ["bash", str(DEPLOY / name), *arguments], env={**kept, **own, **variables}, capture_output=True, text=True
    )


FOLDERS = {"FPL_DATA": "/shared/data", "FPL_OUT": "/shared/runs/a paper"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "64",
    "SLURM_GPUS_ON_NODE": "8",
}


def test_slurm_starts_ray_everywhere_and_the_command_once(stand_ins: Path) -> None:
    done = run_script("slurm.sbatch", stand_ins, "table1", "--retry-failed", **FOLDERS, **SLURM)
    assert done.returncode == 0, done.stderr
    # Of which a step has one core, from Slurm 22.05 on, unless it is told.
    step = (stand_ins / "calls" / "srun").read_text().split()
    assert "--cpus-per-task=64" in step[: step.index("ray")]
    words = (stand_ins / "calls" / "ray").read_text().splitlines()
    separator = words.index("--")
    before, after = words[:separator], words[separator + 1 :]
    assert before[0] == "symmetric-run"
    assert before[before.index("--address") + 1] == "10.0.0.7:6379"
    assert before[before.index("--min-nodes") + 1] == "2"
    assert {"--num-cpus=64", "--num-gpus=8"} <= set(before)
    assert after[:2] == ["fpl", "reproduce"] and after[-2:] == ["table1", "--retry-failed"]
    check_command(after)
    assert after[after.index("--out") + 1] == "/shared/runs/a paper"
    assert after[after.index("--weights") + 1] == "/shared/data/weights"
    variables = dict(
        line.split("=", 1) for line in (stand_ins / "calls" / "ray.env").read_text().splitlines() if "=" in line
    )
    assert variables["RAY_AUTH_MODE"] == "token" and re.fullmatch(r"[0-9a-f]{64}", variables["RAY_AUTH_TOKEN"])


def test_slurm_passes_the_exit_code_on(stand_ins: Path) -> None:
    assert run_script("slurm.sbatch", stand_ins, CODE="3", **FOLDERS, **SLURM).returncode == 3


def test_slurm_goes_back_into_the_queue_before_its_time_is_up(stand_ins: Path) -> None:
    scontrol, srun = stand_ins / "scontrol", stand_ins / "srun"
    scontrol.write_text('#!/usr/bin/env bash\n[[ "$1" == show ]] && echo first || echo "$@" > "$CALLS/requeued"\n')
    # The signal arrives while Ray runs; the script must not end before it.
    srun.write_text(
        srun.read_text().replace('"$@"', 'if [[ "$1" == ray ]]; then kill -USR1 "$PPID"; sleep 0.5; fi; "$@"')
    )
    done = run_script("slurm.sbatch", stand_ins, **FOLDERS, **SLURM)
    assert done.returncode == 0, done.stderr
    assert (stand_ins / "calls" / "requeued").read_text().split() == ["requeue", "7"]
    assert (stand_ins / "calls" / "ray").exists()


def test_slurm_options_are_those_of_the_installed_ray() -> None:
    symmetric = pytest.importorskip("ray.scripts.symmetric_run")
    passed = ["--address", "10.0.0.7:6379", "--min-nodes", "2", "--num-cpus=64", "--num-gpus=8"]
    assert symmetric.curate_and_validate_ray_start_args(passed) == ["--num-cpus=64", "--num-gpus=8"]
    from ray.scripts.scripts import start

    known = {text for parameter in start.params for text in parameter.opts}
    assert {"--num-cpus", "--num-gpus"} <= known


@pytest.mark.parametrize("missing", ["FPL_DATA", "FPL_OUT", "RAY_ADDRESS"])
def test_submission_names_what_is_missing(stand_ins: Path, missing: str) -> None:
    variables = {**FOLDERS, "RAY_ADDRESS": "http://head:8265", "RAY_AUTH_TOKEN": "secret"}
    del variables[missing]
    done = run_script("ray-job-submit.sh", stand_ins, **variables)
    assert done.returncode != 0 and missing in done.stderr and not (stand_ins / "calls" / "ray").exists()


def test_submission_needs_a_token_or_the_word_that_there_is_none(stand_ins: Path) -> None:
    variables = {**FOLDERS, "RAY_ADDRESS": "http://head:8265"}
    done = run_script("ray-job-submit.sh", stand_ins, **variables)
    assert done.returncode == 2 and "no token" in done.stderr
    assert run_script("ray-job-submit.sh", stand_ins, RAY_AUTH_MODE="disabled", **variables).returncode == 0
    assert "RAY_AUTH_MODE=disabled" in (stand_ins / "calls" / "ray.env").read_text().splitlines()


def test_submission_uploads_the_checkout_and_runs_the_command(stand_ins: Path) -> None:
    variables = {**FOLDERS, "RAY_ADDRESS": "http://head:8265", "RAY_AUTH_TOKEN": "secret", "FPL_SEEDS": "3"}
    done = run_script("ray-job-submit.sh", stand_ins, "table2", CODE="1", **variables)
    assert done.returncode == 1
    words = (stand_ins / "calls" / "ray").read_text().splitlines()
    separator = words.index("--")
    before, after = words[:separator], words[separator + 1 :]
    assert before[:2] == ["job", "submit"] and before[before.index("--address") + 1] == "http://head:8265"
    assert before[before.index("--working-dir") + 1] == "."
    assert "excludes" in json.loads(before[before.index("--runtime-env-json") + 1])
    assert after[:4] == ["python", "-m", "fpl", "reproduce"] and after[-1] == "table2"
    check_command(after)
    assert after[after.index("--seeds") + 1] == "3"
    assert "RAY_AUTH_MODE=token" in (stand_ins / "calls" / "ray.env").read_text().splitlines()
