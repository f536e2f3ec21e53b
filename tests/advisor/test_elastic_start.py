"""``vigil advise`` foretells a start by ``vigil elastic`` where all its conditions hold, only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from advisor.inputs import kubernetes_objects
from advisor.workloads.vcjob import follow_up
from contract.documents.elastic_job import PersistedJob
from elastic.conditions import unmet
from tests.elastic.jobs import read, size, vcjob, with_kept
from tests.elastic.test_conditions import BROKEN, second_container

if TYPE_CHECKING:
    from collections.abc import Callable

STARTS = "starts the job again in place, with "


def foretold(item: dict[str, Any], *, is_fault: bool = True) -> str:
    """Return what follows the deletion of the pods of ``item``."""
    job = kubernetes_objects.vcjob(msgspec.Raw(json.dumps(item).encode()))
    return follow_up(job, [], is_fault=is_fault)


def _succeeds(item: dict[str, Any], pods: int) -> dict[str, Any]:
    """Return ``item`` with so many pods that have to succeed."""
    item["spec"]["minSuccess"] = pods
    return item


@pytest.mark.parametrize(
    ("item", "sizes"),
    [
        (vcjob(least="2"), "2 to 4 pods"),
        (vcjob(least="2", action="RestartJob"), "2 to 4 pods"),
        (_succeeds(vcjob(), 3), "3 to 4 pods"),
        (vcjob(replicas=1), "1 to 8 chips"),
        (with_kept(vcjob(), PersistedJob(size(4), size(2), "x", 1, 5)), "1 to 4 pods"),
        (with_kept(vcjob(), PersistedJob(size(4), size(3), "x", 1, 5)), "1 to 4 pods"),
    ],
)
def test_a_start_is_foretold_with_its_sizes(item: dict[str, Any], sizes: str) -> None:
    assert unmet(read(item)) == ()
    assert foretold(item).endswith(STARTS + sizes)


@pytest.mark.parametrize(("name", "spoil"), [(name, spoil) for name, spoil, _ in BROKEN])
def test_none_is_foretold_while_a_condition_does_not_hold(
    name: str, spoil: Callable[[dict[str, Any]], object]
) -> None:
    item = vcjob()
    spoil(item)
    assert STARTS not in foretold(item), name


def test_none_is_foretold_for_a_pod_that_cannot_become_smaller() -> None:
    assert STARTS not in foretold(vcjob(replicas=1, cards=1))
    item = vcjob(replicas=1)
    second_container(item)
    assert STARTS not in foretold(item)


def test_a_policy_of_the_task_goes_before_that_of_the_job() -> None:
    item = vcjob()
    item["spec"]["tasks"][0]["policies"] = [{"event": "PodEvicted", "action": "RestartTask"}]
    assert STARTS not in foretold(item)


def test_none_is_foretold_for_a_program_that_failed() -> None:
    assert STARTS not in foretold(vcjob(), is_fault=False)
