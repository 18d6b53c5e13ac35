"""The deployment files: parsed, compared with the types they are of, and run with stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fpl.cli.reproduce import reproduce

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[1] / "deploy"
SCRIPTS = ("slurm.sbatch", "ray-job-submit.sh")

# Keys of KubeRay's ray.io/v1 types (release 1.6) that may stand at these places.
RAY_JOB = {
    "activeDeadlineSeconds", "backoffLimit", "clusterSelector", "entrypoint", "entrypointNumCpus", "entrypointNumGpus",
    "entrypointResources", "jobId", "metadata", "rayClusterSpec", "runtimeEnvYAML", "shutdownAfterJobFinishes",
    "submissionMode", "submitterConfig", "submitterPodTemplate", "suspend", "ttlSecondsAfterFinished",
}  # fmt: skip
RAY_CLUSTER = {
    "authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec",
    "headServiceAnnotations", "managedBy", "rayVersion", "suspend", "workerGroupSpecs",
}  # fmt: skip
HEAD_GROUP = {"enableIngress", "headService", "labels", "rayStartParams", "resources", "serviceType", "template"}
WORKER_GROUP = {
    "groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts", "rayStartParams",
    "replicas", "resources", "scaleStrategy", "suspend", "template",
}  # fmt: skip


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "kuberay-rayjob.yaml").read_text())
    return loaded


def templates(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    yield job["spec"]["submitterPodTemplate"]
    yield cluster["headGroupSpec"]["template"]
    yield from (group["template"] for group in cluster["workerGroupSpecs"])


def options_of_reproduce() -> set[str]:
    app = typer.Typer()
    app.command()(reproduce)
    return {text for parameter in typer.main.get_command(app).params for text in parameter.opts}


def check_command(words: list[str]) -> None:
    """A call of `fpl reproduce`: known options only, and those that a cluster needs."""
    given = {word for word in words if word.startswith("--")}
    assert given <= options_of_reproduce()
    assert {"--scale", "--out", "--data-root", "--weights", "--address", "--seeds"} <= given
    assert words[words.index("--address") + 1] == "auto" and words[words.index("--scale") + 1] == "paper"


# --- KubeRay --------------------------------------------------------------------------------------------------------


def test_keys_are_those_of_the_types(job: dict[str, Any]) -> None:
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
    assert set(spec) <= RAY_JOB and set(cluster) <= RAY_CLUSTER
    assert set(cluster["headGroupSpec"]) <= HEAD_GROUP
    assert all(set(group) <= WORKER_GROUP for group in cluster["workerGroupSpecs"])
    assert spec["submissionMode"] in ("K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")
    assert spec["backoffLimit"] >= 1 and spec["shutdownAfterJobFinishes"] is True
    parameters = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    # The operator accepts texts alone.
    assert all(isinstance(value, str) for part in parameters for value in part["rayStartParams"].values())
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_every_container_says_how_it_authenticates(job: dict[str, Any]) -> None:
    containers = [container for template in templates(job) for container in template["spec"]["containers"]]
    assert len(containers) == 3
    options = job["spec"]["rayClusterSpec"]["authOptions"]
    for container in containers:
        variables = {entry["name"]: entry for entry in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == options["mode"] == "token"
        secret = variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
        # The operator reads the token under this key.
        assert secret == {"name": options["secretName"], "key": "auth_token"}


def test_head_and_workers_share_the_volume_and_the_image_is_the_users(job: dict[str, Any]) -> None:
    cluster = job["spec"]["rayClusterSpec"]
    for template in (cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]):
        (container,) = template["spec"]["containers"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert set(mounted) == set(volumes) and mounted["shared"] == "/shared"
        assert "persistentVolumeClaim" in volumes["shared"]
    images = {container["image"] for template in templates(job) for container in template["spec"]["containers"]}
    assert images == {"FPL_IMAGE"}


def test_workers_hold_whole_runs(job: dict[str, Any]) -> None:
    from fpl.config.layers import read_scale

    launch = read_scale(DEPLOY.parent / "experiments" / "scale" / "paper.toml").launch
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    gpus = group["replicas"] * int(limits["nvidia.com/gpu"])
    assert gpus % (launch["workers"] * launch["gpus_per_worker"]) == 0
    assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]


def test_entrypoint_is_the_one_command(job: dict[str, Any]) -> None:
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["fpl", "reproduce"]
    check_command(words)
    # The operator puts it into a shell command as it is.
    assert not re.search(r"[;&|<>$`'\"(){}*?\\]", job["spec"]["entrypoint"])
    paths = [word for word in words if "/" in word]
    assert len(paths) == 6 and all(path.startswith(("/shared/", "/fpl/")) for path in paths)


# --- scripts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_no_syntax_error_and_can_be_executed(name: str) -> None:
    subprocess.run(["bash", "-n", str(DEPLOY / name)], check=True)
    text = (DEPLOY / name).read_text()
    assert os.access(DEPLOY / name, os.X_OK) and text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text and "RAY_AUTH_MODE" in text


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
        "srun": 'while [[ "$1" == --* ]]; do shift; done; "$@"',
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
    import json

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
