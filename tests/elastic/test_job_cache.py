"""What is followed beside jobs and pods: Queues, and the scheduler's own configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from elastic.job_cache import KINDS, QUEUES, SCHEDULER, JobCache
from stores.cluster import Snapshot
from tests.elastic.jobs import OPEN, read, vcjob
from tests.parts.kubernetes_object import made_of

if TYPE_CHECKING:
    from contract.kubernetes import KubernetesObject


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        ("q1", "Open", ""),
        ("q1", "", ""),
        ("q1", "Closing", "queue q1 is Closing; open it: vcctl queue operate --name q1 "),
        ("q1", "Closed", "queue q1 is Closed; open it"),
        ("q2", "Open", "queue q1 does not exist"),
    ],
)
def test_a_queue_from_which_the_scheduler_takes_no_job(name: str, state: str, text: str) -> None:
    item = vcjob()
    item["spec"]["queue"] = "q1"
    queue = {"metadata": {"name": name}, "status": {"state": state}}
    known = JobCache()
    known.update(QUEUES, Snapshot({"u": KINDS[QUEUES].read(made_of(queue))}))
    found = known.closed_queue(read(item))
    assert found.startswith(text)
    assert bool(found) is bool(text)


def test_a_job_that_names_no_queue_is_in_the_default_one() -> None:
    item = vcjob()
    del item["spec"]["queue"]
    known = JobCache()
    assert known.closed_queue(read(item)).startswith("queue default does not exist")
    known.update(QUEUES, Snapshot(OPEN))
    assert known.closed_queue(read(item)) == ""


def _configmap(text: str) -> KubernetesObject:
    metadata = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
    item = {"metadata": metadata | {"uid": "u"}, "data": {"volcano-scheduler.conf": text}}
    return made_of(item)


def _arguments(value: str) -> str:
    arguments = {"grace-over-time": value}
    return json.dumps({"configurations": [{"name": "init-params", "arguments": arguments}]})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (_arguments("1800"), 1800),
        (_arguments("1"), 900),
        ("actions: enqueue", 900),
        ("[", 900),
        ("", 900),
    ],
)
def test_grace_over_time_is_that_of_the_scheduler(text: str, seconds: int) -> None:
    known = JobCache()
    known.update(SCHEDULER, Snapshot({"u": KINDS[SCHEDULER].read(_configmap(text))}))
    assert known.grace_over_time_ms == seconds * 1000


def test_a_cluster_without_that_configmap_has_the_default() -> None:
    known = JobCache()
    assert any("volcano-scheduler-configmap" in one for one in known.unread)
    known.update(SCHEDULER, Snapshot({}))
    assert known.grace_over_time_ms == 900_000
    assert not any("volcano-scheduler-configmap" in one for one in known.unread)


def test_a_configmap_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="ConfigMap"):
        KINDS[SCHEDULER].read(made_of({"metadata": {"name": "x"}, "data": 3}))
