"""The manifest for KubeRay: its fields are those of a RayJob, and what it says fits together."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.commands import DEPLOY, check_command
from tests.deploy.schemas import Schema, closed, problems, schema_of, schema_of_version

# A file of the operator with its definition of a RayJob; deploy/README.md says where it is.
DEFINITION = os.environ.get("FPL_KUBERAY_CRD")
# Whose names are not those of fields.
FREE = {"rayStartParams", "requests", "limits"}


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "kuberay-rayjob.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def fields() -> Schema:
    return schema_of(yaml.safe_load(Path(__file__).with_name("rayjob_fields.yaml").read_text()))


@pytest.fixture(scope="module")
def definition() -> Schema:
    if DEFINITION is None:
        pytest.skip("FPL_KUBERAY_CRD names no definition of RayJob")
    # It has a megabyte, which the parser in C reads in seconds instead of half a minute.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return schema_of_version(yaml.load(Path(DEFINITION).read_text(), loader), "v1")


def templates(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    yield job["spec"]["submitterPodTemplate"]
    yield cluster["headGroupSpec"]["template"]
    yield from (group["template"] for group in cluster["workerGroupSpecs"])


# --- fields ---------------------------------------------------------------------------------------------------------


def places(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Paths of a document to everything in it."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, *path, key)


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def test_fields_are_those_of_a_rayjob(job: dict[str, Any], fields: Schema) -> None:
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert problems(fields, job) == []


def test_a_misspelt_field_or_a_value_of_another_type_is_found_wherever_it_stands(
    job: dict[str, Any], fields: Schema
) -> None:
    every = [path for path in places(job) if path]
    assert len(every) > 100
    for path in every:
        *above, last = path
        holder: Any = copy.deepcopy(job)
        at(holder, (*above,))[last] = None
        assert problems(fields, holder), path
        if isinstance(last, str) and (not above or above[-1] not in FREE):
            renamed: Any = copy.deepcopy(job)
            inside = at(renamed, (*above,))
            inside[last + "s"] = inside.pop(last)
            assert problems(fields, renamed), path


def test_what_is_required_may_not_be_missing(job: dict[str, Any], fields: Schema) -> None:
    less = copy.deepcopy(job)
    del less["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["maxReplicas"]
    del less["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"][1][
        "containerPort"
    ]
    assert sorted(problems(fields, less)) == [
        "$.spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].ports[1]: "
        "'containerPort' is a required property",
        "$.spec.rayClusterSpec.workerGroupSpecs[0]: 'maxReplicas' is a required property",
    ]


def test_a_definition_is_closed_and_its_lists_that_are_maps_have_no_key_twice() -> None:
    port = {"properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}
    lists = {"type": "array", "items": port, "x-kubernetes-list-map-keys": ["port", "protocol"]}
    free = {"type": "object", "additionalProperties": {"properties": {"key": {"type": "string"}}}}
    kept = {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"l": lists, "f": free, "k": kept}}}}]
    schema = closed(schema_of_version({"spec": {"versions": versions}}, "v1"))
    right = {
        "l": [{"port": 1}, {"port": 2}, {"port": 1, "protocol": "UDP"}],
        "f": {"any": {"key": ""}},
        "k": {"any": 1},
    }
    assert problems(schema, right) == []
    wrong = {"l": [{"port": 1}, {"port": 1, "protocol": "TCP"}, {"prt": 3}], "f": {"any": {"keys": ""}}, "x": 1}
    assert sorted(problems(schema, wrong)) == [
        "$.f.any: Additional properties are not allowed ('keys' was unexpected)",
        "$.l: two entries have the same port and protocol",
        "$.l[2]: Additional properties are not allowed ('prt' was unexpected)",
        "$: Additional properties are not allowed ('x' was unexpected)",
    ]


def test_the_operators_definition_accepts_the_manifest(job: dict[str, Any], definition: Schema) -> None:
    schema = closed(definition)
    assert problems(schema, job) == []
    wrong = copy.deepcopy(job)
    wrong["spec"]["rayClusterSpec"]["authOptions"]["secretname"] = "misspelt"
    wrong["spec"]["backoffLimit"] = "3"
    assert len(problems(schema, wrong)) == 2


def test_our_list_of_fields_is_a_part_of_the_operators_definition(fields: Schema, definition: Schema) -> None:
    def compare(ours: Schema, theirs: Schema, path: str) -> None:
        assert ours.get("type") == theirs.get("type"), path
        assert ours.get("anyOf") == theirs.get("anyOf"), path
        assert sorted(ours.get("required", ())) == sorted(theirs.get("required", ())), path
        for name, value in ours.get("properties", {}).items():
            # Of a resource's own metadata a definition says no fields: they are the same for all kinds.
            if path != "$.metadata":
                compare(value, theirs["properties"][name], f"{path}.{name}")
        for name in ("items", "additionalProperties"):
            if isinstance(ours.get(name), dict):
                compare(ours[name], theirs[name], f"{path}.{name}")

    compare(fields, definition, "$")


# --- what it says ---------------------------------------------------------------------------------------------------


def test_it_is_tried_again_and_nothing_is_trained_on_the_head(job: dict[str, Any]) -> None:
    spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
    # The definition says no more of it than that it is a text.
    assert spec["submissionMode"] == "K8sJobMode"
    assert spec["backoffLimit"] >= 1 and spec["shutdownAfterJobFinishes"] is True
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
    from fpl.config.scale import read_scale

    launch = read_scale(DEPLOY.parent / "experiments" / "scale" / "paper.toml").launch
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    gpus = group["replicas"] * int(limits["nvidia.com/gpu"])
    assert gpus % (launch["workers"] * launch["gpus_per_worker"]) == 0
    assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]


def test_a_node_has_more_than_its_pod_of_a_worker_asks_for(job: dict[str, Any]) -> None:
    """The system and the kubelet keep a part to themselves: a pod that asks for the whole node is never placed."""
    readme = " ".join((DEPLOY / "README.md").read_text().split())
    stated = re.search(
        r"nodes with (\d+) GPUs, (\d+) cores and (\d+) GiB: they ask for (\d+) cores and (\d+) GiB", readme
    )
    assert stated is not None
    gpus, cores, memory, asked_cores, asked_memory = map(int, stated.groups())
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    resources = group["template"]["spec"]["containers"][0]["resources"]
    asked = {"cpu": str(asked_cores), "memory": f"{asked_memory}Gi", "nvidia.com/gpu": str(gpus)}
    assert resources["requests"] == resources["limits"] == asked
    assert asked_cores <= 0.9 * cores and asked_memory <= 0.9 * memory


def test_entrypoint_is_the_one_command(job: dict[str, Any]) -> None:
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["fpl", "reproduce"]
    check_command(words)
    # The operator puts it into a shell command as it is.
    assert not re.search(r"[;&|<>$`'\"(){}*?\\]", job["spec"]["entrypoint"])
    paths = [word for word in words if "/" in word]
    assert len(paths) == 6 and all(path.startswith(("/shared/", "/fpl/")) for path in paths)
