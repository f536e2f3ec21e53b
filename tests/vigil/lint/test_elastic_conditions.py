"""``vigil lint`` finds in a manifest what keeps ``vigil elastic`` from starting the job again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from advisor.lint.labels import RING_CONTROLLER
from tests.advisor.workloads.broken_jobs import BROKEN, second_container
from tests.elastic.jobs import vcjob
from vigil.lint.reading import File
from vigil.lint.run import lint

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_IN_MANIFESTS = ("state", "elastic-scheduling")
"""What a daemon wrote, and the label by which a job asks for elastic training."""


def found(item: dict[str, Any]) -> list[str]:
    """Return the codes about elastic training that are found in a manifest."""
    item["metadata"]["labels"][RING_CONTROLLER] = "ascend-910"
    report = lint([File("job.json", json.dumps(item))])
    return [one.rule.code for one in report.findings if one.rule.code.startswith("ELASTIC_")]


def test_a_job_that_meets_all_conditions() -> None:
    assert found(vcjob()) == []


@pytest.mark.parametrize(
    ("name", "spoil"), [(n, spoil) for n, spoil, _ in BROKEN if n not in _NOT_IN_MANIFESTS]
)
def test_each_condition_is_found(name: str, spoil: Callable[[dict[str, Any]], object]) -> None:
    item = vcjob()
    spoil(item)
    assert found(item), name


def test_a_single_pod_needs_two_chips_in_one_container() -> None:
    assert found(vcjob(replicas=1)) == ["ELASTIC_ONE_REPLICA"]
    assert found(vcjob(replicas=1, cards=1)) == ["ELASTIC_CONDITION"]
    item = vcjob(replicas=1)
    second_container(item)
    assert "ELASTIC_CONDITION" in found(item)
    several = vcjob(replicas=2)
    second_container(several)
    assert found(several) == []


def test_a_policy_of_the_task_goes_before_that_of_the_job() -> None:
    item = vcjob()
    item["spec"]["tasks"][0]["policies"] = [{"event": "PodEvicted", "action": "RestartTask"}]
    assert found(item) == ["ELASTIC_POLICY"]
