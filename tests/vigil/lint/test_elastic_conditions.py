"""``vigil lint`` finds in a manifest what keeps ``vigil elastic`` from starting the job again."""

from __future__ import annotations

import json
from typing import Any

from advisor.lint.labels import RING_CONTROLLER
from tests.advisor.workloads.broken_jobs import second_container
from tests.elastic.jobs import vcjob
from vigil.lint.reading import File
from vigil.lint.run import lint


def found(item: dict[str, Any]) -> list[str]:
    """Return the codes about elastic training that are found in a manifest."""
    item["metadata"]["labels"][RING_CONTROLLER] = "ascend-910"
    report = lint([File("job.json", json.dumps(item))])
    return [one.rule.code for one in report.findings if one.rule.code.startswith("ELASTIC_")]


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
