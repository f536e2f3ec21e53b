"""Objects of Kubernetes as the advisor reads them, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from advisor.inputs import kubernetes_objects
from advisor.inputs.quantities import amount
from advisor.snapshot import Container, ControllingOwner, LifecyclePolicy, Requirement, Toleration
from contract.errors import DocumentError
from contract.scheduling import go_integer
from tests.parts.kubernetes_object import made_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.kubernetes import AnyObject


@pytest.mark.parametrize(
    ("text", "resource", "expected"),
    [
        ("8", "huawei.com/Ascend910", 8),
        ("8", "cpu", 8000),
        ("500m", "cpu", 500),
        ("0.1", "cpu", 100),
        ("1", "memory", 1),
        ("1500m", "memory", 2),
        ("2Ki", "memory", 2048),
        ("1500Gi", "memory", 1500 * 2**30),
        ("1e3", "memory", 1000),
        ("1E3", "memory", 1000),
        ("2E", "memory", 2 * 10**18),
        ("3k", "memory", 3000),
        ("-1", "memory", -1),
        (".5", "cpu", 500),
        ("", "cpu", None),
        ("8 ", "cpu", None),
        ("٣", "cpu", None),
        ("1x", "cpu", None),
        ("1e999", "cpu", None),
        ("9" * 50, "cpu", None),
        ("nan", "cpu", None),
    ],
)
def test_quantities(text: str, resource: str, expected: int | None) -> None:
    assert amount(text, resource) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("+3", 3),
        ("-3", -3),
        ("007", 7),
        ("0" * 5000 + "1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("9" * 5000, None),
        ("", None),
        (" 1", None),
        ("1\n", None),
        ("1_0", None),
        ("٣", None),
        ("1.0", None),
        ("+", None),
    ],
)
def test_integers_are_those_of_go(text: str, expected: int | None) -> None:
    assert go_integer(text) == expected


def _pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "spec": spec}


def test_a_pod() -> None:
    raw = {
        "metadata": {
            "namespace": "ns",
            "name": "p",
            "uid": "u",
            "creationTimestamp": "2026-11-21T12:00:00Z",
            "deletionTimestamp": "2026-11-21T12:00:01Z",
            "labels": {"a": "b"},
            "annotations": {"scheduling.k8s.io/group-name": "g"},
            "ownerReferences": [
                {"kind": "Other", "name": "o"},
                {"kind": "Job", "name": "j", "uid": "ju", "controller": True},
            ],
        },
        "spec": {
            "nodeName": "n1",
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"k": "v"},
            "tolerations": [{"key": "t", "operator": "Exists"}, {"operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                        ]
                    }
                }
            },
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "4"}}}],
            "containers": [
                {
                    "name": "c",
                    "env": [{"name": "VC_TASK_INDEX", "value": "3"}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"huawei.com/npu": "2"}},
                },
                {"name": "d", "resources": {"requests": {"cpu": "500m"}}},
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "c",
                    "restartCount": 2,
                    "state": {"running": {}},
                    "lastState": {"terminated": {"exitCode": 1}},
                },
                {"name": "d", "state": {"terminated": {"exitCode": 0}}},
            ],
        },
    }
    pod = kubernetes_objects.pod(made_of(raw))
    assert kubernetes_objects.pod(msgspec.Raw(json.dumps(raw).encode())) == pod
    assert (pod.node, pod.phase, pod.group, pod.task_index) == ("n1", "Running", "g", "3")
    assert pod.owner == ControllingOwner("Job", "j", "ju")
    assert pod.created_at_ms == 1_795_262_400_000
    assert (pod.is_terminating, pod.termination_grace_seconds) == (True, 0)
    assert pod.requests == {"cpu": 4000, "huawei.com/npu": 2}
    assert pod.tolerations == (Toleration("t", "Exists"), Toleration("", "Exists"))
    assert pod.node_affinity is not None
    assert pod.node_affinity[0].labels == (Requirement("k", "In", ("v",)),)
    assert pod.containers == (Container("c", None, 1, 2), Container("d", 0, None, 0))


def test_the_least_of_each_kind() -> None:
    least = made_of({"metadata": {"name": "x", "labels": None, "annotations": None}})
    assert kubernetes_objects.pod(least).termination_grace_seconds == 30
    assert not kubernetes_objects.node(least).is_ready
    assert kubernetes_objects.pod_group(least).min_member == 0
    assert kubernetes_objects.vcjob(least).max_retry is None
    assert kubernetes_objects.ascend_job(least).backoff_limit is None
    assert kubernetes_objects.replica_set(least).replicas == 1
    assert kubernetes_objects.configmap(least).data == {}


def test_jobs_and_what_they_ask_for() -> None:
    job = kubernetes_objects.vcjob(
        made_of(
            {
                "metadata": {"namespace": "ns", "name": "j"},
                "spec": {
                    "maxRetry": 0,
                    "minAvailable": 2,
                    "tasks": [
                        {"name": "w", "replicas": 2, "policies": [{"event": "A", "events": ["B"]}]},
                        {"name": "x"},
                    ],
                    "policies": [{"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}],
                },
                "status": {"state": {"phase": "Running"}, "retryCount": 1},
            }
        )
    )
    assert (job.replicas, job.max_retry, job.phase, job.retry_count) == (3, 0, "Running", 1)
    assert job.policies == (LifecyclePolicy(("PodEvicted", "PodFailed"), "RestartJob"),)
    assert job.tasks[0].policies == (LifecyclePolicy(("A", "B"), ""),)
    ascend = kubernetes_objects.ascend_job(
        made_of(
            {
                "metadata": {"namespace": "ns", "name": "a"},
                "spec": {
                    "runPolicy": {"backoffLimit": 3},
                    "replicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}},
                },
                "status": {"conditions": [{"type": "Failed", "status": "True"}]},
            }
        )
    )
    assert (ascend.replicas, ascend.backoff_limit, ascend.is_over) == (4, 3, True)


_READERS: list[Callable[[AnyObject], object]] = [
    kubernetes_objects.pod,
    kubernetes_objects.node,
    kubernetes_objects.pod_group,
    kubernetes_objects.vcjob,
    kubernetes_objects.ascend_job,
    kubernetes_objects.replica_set,
    kubernetes_objects.configmap,
]


_UNNAMED = b'{"metadata": {"name": 1}}'


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"metadata": null}',
        _UNNAMED,
        b'{"metadata": {"name": "x", "labels": {"a": 1}}}',
        b'{"metadata": {"name": "x", "annotations": []}}',
        b"{",
        b"[" * 100_000,
        b'"\xff"',
    ],
)
def test_a_value_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(DocumentError):
        kubernetes_objects.pod(raw)


@pytest.mark.parametrize("read", _READERS)
def test_every_reader_refuses_an_object_without_a_name(
    read: Callable[[AnyObject], object],
) -> None:
    with pytest.raises(DocumentError):
        read(_UNNAMED)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"metadata": {"namespace": "ns", "name": "p", "labels": {"a": 1}}},
            "Pod ns/p: $.metadata.labels[...]: must be a text, is an integer",
        ),
        (
            _pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "1x"}}}]),
            "Pod ns/p: $.spec.containers['c'].resources['cpu']: '1x' is not a valid quantity",
        ),
        (
            {"metadata": {"namespace": "ns", "name": "p", "creationTimestamp": "yesterday"}},
            "Pod ns/p: $.metadata.creationTimestamp: 'yesterday' is not a valid time",
        ),
        ({"spec": {}}, "Pod without a name: $.metadata: is missing"),
    ],
)
def test_messages_name_the_object_and_the_place(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as error:
        kubernetes_objects.pod(msgspec.json.encode(raw))
    assert str(error.value) == message


_PROGRAM = """
import json, sys
from advisor.report import flat
from tests.advisor.recordings import played
for name in ("aibrix-shared-group-rank-0", "subhealth-strategies"):
    for one in played(name):
        print(json.dumps(flat(one.report)))
"""


@pytest.mark.slow
def test_the_same_bytes_with_any_hash_seed() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert len(printed.pop()) > 10_000
