"""A dump that lacks something is answered by "not known", and names that people have are taken."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from contract.errors import ConfigurationError
from tests.vigil.advise.cluster import as_list, named, two_pods_on_two_of_three_nodes
from tests.vigil.advise.running import sessions_of, vigil
from vigil.advise.json_values import KUBECTL, MAX_YAML_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.testing import Result

ROOT = Path(__file__).parents[3]
Object = dict[str, Any]
STORM = "orchestration.aibrix.ai/v1alpha1"


def advised(tmp_path: Path, items: list[Object], *options: str) -> Result:
    """Run the verb on a List with these objects."""
    file = tmp_path / "dump.json"
    file.write_text(as_list(items))
    return vigil("--dump", file, *options)


def without(kind: str, name: str = "") -> Callable[[Object], bool]:
    """Return what keeps all objects but those of a kind, or one of them."""
    return lambda one: one["kind"] != kind or (name not in ("", one["metadata"]["name"]))


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("PodGroup", "", "PodGroup default/j, which 2 pods name (j-0), is not in the dump"),
        ("Node", "", "no Node is in the dump"),
        ("Node", "n2", "Node n2, which 1 pod names (j-1), is not in the dump"),
        ("Pod", "", "no Pod is in the dump"),
        ("ConfigMap", "", "no ConfigMap cluster-info-device-… is in the dump"),
        ("ConfigMap", "cluster-info-node-cm", "no ConfigMap cluster-info-node-cm is in the dump"),
    ],
)
def test_what_is_missing_is_not_known(tmp_path: Path, kind: str, name: str, reason: str) -> None:
    items = [*filter(without(kind, name), two_pods_on_two_of_three_nodes())]
    result = advised(tmp_path, items)
    assert result.exit_code == 1
    assert "nothing happens" not in result.stdout
    assert reason in result.stdout.partition("not known")[2]
    for one in sessions_of(advised(tmp_path, items, "--json")):
        assert one["known"] is False
        assert any(reason in text for text in one["reasons"])
        assert set(one["reasons"]) < set(one["not_known"])


def test_what_is_assumed_to_be_gone_is_not_missing(tmp_path: Path) -> None:
    result = advised(tmp_path, two_pods_on_two_of_three_nodes(), "--what-if", "n2 gone", "--json")
    assert result.exit_code == 1, "it deletes"
    assert all(one["known"] and not one["reasons"] for one in sessions_of(result))


def test_the_podgroup_of_a_job_that_ends_is_not_missing(tmp_path: Path) -> None:
    items = [*filter(without("PodGroup"), two_pods_on_two_of_three_nodes())]
    for one in items:
        if one["kind"] == "Pod":
            one["status"]["phase"] = "Succeeded"
    assert advised(tmp_path, items).exit_code == 0


def test_sessions_have_all_objects(tmp_path: Path) -> None:
    items = [*filter(without("PodGroup"), two_pods_on_two_of_three_nodes())]
    file = tmp_path / "sessions.jsonl"
    file.write_text(json.dumps({"now_ms": 1_795_453_200_000, "items": items}))
    assert vigil("--dump", file).exit_code == 0


def test_only_a_service_has_no_date_and_no_answer(tmp_path: Path) -> None:
    storm = named("StormService", "s", version=STORM, spec={"replicas": 1})
    result = advised(tmp_path, [storm])
    assert result.exit_code == 1
    assert "1970" not in result.stdout
    assert "nothing happens" not in result.stdout
    assert "StormService default/s: no pod of it is in the dump" in result.stdout
    (found, _) = sessions_of(advised(tmp_path, [storm], "--json", "--job", "default/s"))
    assert (found["now_ms"], found["known"]) == (None, False)


def test_a_scaling_rule_that_is_missing_is_not_known(tmp_path: Path) -> None:
    labels = {"mind-cluster/scaling-rule": "rule", "mind-cluster/group-name": "g", "jobID": "s"}
    version = "mindxdl.gitee.com/v1"
    job = named("AscendJob", "a", "default", version, metadata={"labels": labels}, spec={})
    result = advised(tmp_path, [*two_pods_on_two_of_three_nodes(), job], "--job", "default/a")
    assert result.exit_code == 1
    assert "ConfigMap default/rule, the scaling rule of AscendJob default/a" in result.stdout


def of(owner: tuple[str, str] | None, labels: dict[str, str]) -> list[Object]:
    """Return the small cluster with pods and a PodGroup of this owner, and these labels."""
    items = two_pods_on_two_of_three_nodes()
    for one in items:
        if owner is not None and one["kind"] in ("Pod", "PodGroup"):
            kind, name = owner
            own = {"kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
            one["metadata"]["ownerReferences"] = [own]
        if one["kind"] == "Pod":
            one["metadata"].setdefault("labels", {}).update(labels)
    return items


def owned(kind: str, name: str, version: str, owner: tuple[str, str]) -> Object:
    own = {"kind": owner[0], "name": owner[1], "uid": "u", "controller": True}
    return named(kind, name, "default", version, metadata={"ownerReferences": [own]})


@pytest.mark.parametrize(
    "items",
    [
        of(("PodSet", "s-p-0"), {"storm-service-name": "s"}),
        [
            *of(("PodSet", "a-p-0"), {}),
            owned("RoleSet", "a", STORM, ("StormService", "s")),
            owned("PodSet", "a-p-0", STORM, ("RoleSet", "a")),
        ],
        of(("ReplicaSet", "s-engine-6f"), {"ome.io/inferenceservice": "s"}),
        of(("StatefulSet", "s"), {"leaderworkerset.sigs.k8s.io/name": "s"}),
        of(("AscendJob", "s"), {}),
        of(("ReplicaSet", "s-6f"), {"pod-template-hash": "6f"}),
        [
            *of(("ReplicaSet", "other"), {}),
            owned("ReplicaSet", "other", "apps/v1", ("Deployment", "s")),
        ],
    ],
    ids=["label", "owners", "ome", "lws", "ascendjob", "hash", "deployment"],
)
def test_a_job_is_named_by_what_made_it(tmp_path: Path, items: list[Object]) -> None:
    result = advised(tmp_path, items, "--job", "default/s", "--what-if", "n1 UnHealthy")
    assert "default/j " in result.stdout
    assert "NodeUnhealthy" in result.stdout
    with pytest.raises(ConfigurationError, match="default/t"):
        raise advised(tmp_path, items, "--job", "default/t").exception or AssertionError


def test_a_pod_without_a_podgroup_is_restarted_by_the_kubelet(tmp_path: Path) -> None:
    items = [*filter(without("PodGroup"), of(("ReplicaSet", "s-6f"), {}))]
    for one in items:
        if one["kind"] == "Pod":
            del one["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
            one["spec"]["restartPolicy"] = "Always"
    what_if = ("--what-if", "pod default/j-1 exits 1")
    result = advised(tmp_path, items, *what_if)
    assert result.exit_code == 0
    assert "the pod is in no PodGroup" in result.stdout
    assert "the kubelet restarts the container of j-1 in place" in result.stdout
    assert "nothing happens" not in result.stdout


@pytest.mark.slow
def test_yaml_is_read_as_json_is(tmp_path: Path) -> None:
    items = two_pods_on_two_of_three_nodes()
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(json.loads(as_list(items))))
    what_if = ("--json", "--what-if", "n1 UnHealthy")
    assert vigil("--dump", file, *what_if).stdout == advised(tmp_path, items, *what_if).stdout
    file.write_text(yaml.safe_dump_all(json.loads(as_list(items))["items"]))
    assert vigil("--dump", file).stdout == advised(tmp_path, items).stdout


def test_scalars_of_yaml_are_those_of_kubernetes(tmp_path: Path) -> None:
    """A time stays a text, ``on`` is none, and an error names the line of its object."""
    file = tmp_path / "dump.yaml"
    head = "kind: List\nitems:\n- kind: Pod\n  apiVersion: v1\n  metadata:\n    name: p\n"
    file.write_text(f"{head}    creationTimestamp: 2026-11-23T17:00:00Z\n")
    assert sessions_of(vigil("--dump", file, "--json"))[0]["now_ms"] == 1_795_453_200_000
    file.write_text(f"{head}    labels:\n      fault-scheduling: on\n")
    assert "line 3: Pod p: $.metadata.labels" in str(vigil("--dump", file).exception)


@pytest.mark.parametrize(
    "text",
    [
        "NAME   READY  STATUS\npod-1  1/1    Running\n",
        "pod/a\npod/b\n",
        "Name: x\nLabels: y\n",
        "Name: x\nLabels:  a=b\n  c: d\n",
        "[" * 100_000,
        "a: " + "[" * 100_000,
        "a: &x [1]\nb: *x\nkind: List\n",
        "\x00\x01",
        '{"a": 1}',
        "[1]",
        "<html></html>",
        "---\nkind: 7\n",
    ],
)
def test_anything_else_gets_one_line_with_the_command(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other"
    file.write_text(text)
    error = vigil("--dump", file).exception
    assert isinstance(error, ConfigurationError)
    assert len(error.problems) == 1
    assert KUBECTL in str(error)


@pytest.mark.slow
def test_yaml_that_is_too_long_gets_the_command(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as large:
        large.write(b"kind: List\n")
        large.truncate(MAX_YAML_BYTES + 1)
    error = vigil("--dump", file).exception
    assert "64 MiB are read" in str(error)
    assert KUBECTL in str(error)


def test_the_document_has_the_command() -> None:
    text = (ROOT / "docs/advise.md").read_text()
    assert KUBECTL.replace(" ", "") in re.sub(r"[\\\s]+", "", text)
