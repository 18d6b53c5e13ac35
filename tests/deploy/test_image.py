"""The image's Dockerfile: read, not built."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from typing import NamedTuple

import pytest
import typer
import yaml

from fpl.cli.main import app
from tests.deploy.commands import DEPLOY, ROOT


class Instruction(NamedTuple):
    name: str
    text: str


# Of which this one consists; a misspelt one ends a build.
KNOWN = {"ARG", "FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "HEALTHCHECK", "CMD"}


@pytest.fixture(scope="module")
def image() -> list[Instruction]:
    """The instructions in their order, each on one line, without comments, arguments put in."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    instructions = [Instruction(*line.split(maxsplit=1)) for line in whole.splitlines() if line]
    arguments = dict(each.text.split("=", 1) for each in instructions if each.name == "ARG")
    return [
        Instruction(name, re.sub(r"\$\{(\w+)\}", lambda found: arguments.get(found[1], found[0]), text))
        for name, text in instructions
    ]


def texts(image: list[Instruction], name: str) -> list[str]:
    return [each.text for each in image if each.name == name]


def shells(image: list[Instruction]) -> list[str]:
    """What RUN gives to a shell."""
    return [re.sub(r"^(--\w+=\S+\s+)+", "", text) for text in texts(image, "RUN")]


def test_its_instructions_exist_and_what_it_runs_is_shell(image: list[Instruction]) -> None:
    assert {each.name for each in image} == KNOWN
    assert image[0].name == "ARG" and image[1].name == "FROM"
    for command in shells(image):
        subprocess.run(["sh", "-n", "-c", command], check=True)
        # A step whose middle fails must fail: Docker's shell knows no `set -e`.
        assert ";" not in command and "||" not in command and "|" not in command


def test_it_stands_on_cudas_runtime_of_the_installed_torch(image: list[Instruction]) -> None:
    import torch

    (base,) = texts(image, "FROM")
    name, _, tag = base.partition(":")
    # Without the name of a registry, and not whatever is the newest.
    assert name == "nvidia/cuda"
    version, _, rest = tag.partition("-")
    assert rest == "base-ubuntu24.04"
    if torch.version.cuda is not None:
        assert version.split(".")[:2] == torch.version.cuda.split(".")[:2]


def test_the_package_is_that_of_the_checkout_with_all_that_a_cluster_needs(image: list[Instruction]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    order = [each.name for each in image]
    (copied,) = texts(image, "COPY")
    assert copied == ". ."
    (install,) = [command for command in shells(image) if "pip install" in command]
    assert "pip install '.[cluster]'" in install and "cluster" in project["optional-dependencies"]
    at = next(index for index, each in enumerate(image) if "pip install" in each.text)
    assert order.index("COPY") < at
    # The environment made there is the one that is found first.
    (variables,) = texts(image, "ENV")
    assert "python3 -m venv /opt/fpl" in install and "PATH=/opt/fpl/bin:$PATH" in variables
    # Where the job for KubeRay looks for the tables.
    (folder,) = texts(image, "WORKDIR")
    assert f"--experiments {folder}/experiments" in (DEPLOY / "kuberay-rayjob.yaml").read_text()


def test_it_is_not_root_and_writes_to_the_shared_volume(image: list[Instruction]) -> None:
    names = [each.name for each in image]
    (user,) = texts(image, "USER")
    number, _, group = user.partition(":")
    assert number == group and number.isdigit() and int(number) > 1000
    (add,) = [command for command in shells(image) if command.startswith("useradd")]
    assert f"--uid {number}" in add
    # Root has done its work before, and what runs in the end is not root's.
    after = image[names.index("USER") + 1 :]
    assert [each.name for each in after] == ["RUN", "HEALTHCHECK", "CMD"]
    job = yaml.safe_load((DEPLOY / "kuberay-rayjob.yaml").read_text())
    cluster = job["spec"]["rayClusterSpec"]
    for part in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        context = part["template"]["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True and context["fsGroup"] == int(number)


def test_the_doctor_says_whether_it_is_well(image: list[Instruction]) -> None:
    (check,) = texts(image, "HEALTHCHECK")
    options, _, command = check.partition("CMD ")
    assert json.loads(command) == ["fpl", "doctor"] and "doctor" in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {word.partition("=")[0] for word in shlex.split(options)} == {"--interval", "--timeout", "--start-period"}
    assert "fpl doctor" in shells(image)


def is_let_through(path: str) -> bool:
    """What the patterns of .dockerignore say: the last that fits the path or a folder above it."""
    parts = path.split("/")
    prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    kept = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(pattern, prefix) for prefix in prefixes):
            kept = line.startswith("!")
    return kept


def test_the_build_is_given_what_the_package_is_made_of_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = ["pyproject.toml", "setup.py", project["readme"], *project["license-files"]]
    for folder in ("fpl", "experiments"):
        files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        needed += [path.relative_to(ROOT).as_posix() for path in files]
    assert len(needed) > 300
    assert [path for path in needed if not is_let_through(path) and not path.startswith("experiments/splits/")] == []
    for path in (
        *("data/cityscapes/a.png", "runs/mini/runs/a.parquet", "results/mini/runs/all.parquet", ".git/HEAD"),
        *(".venv/bin/python", "tests/conftest.py", "fpl/__pycache__/a.pyc", "fpl/losses/__pycache__/a.pyc"),
        *("build/lib/fpl/a.py", "experiments/splits/city/every-nth/1_4/split.json", ".env"),
    ):
        assert not is_let_through(path), path
