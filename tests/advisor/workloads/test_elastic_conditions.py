"""Conditions of elastic training: jobs that meet them, jobs that do not, and starts foretold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from advisor.workloads.elastic_conditions import CONDITIONS, original_of, unmet
from advisor.workloads.pod_recreation import follow_up_of_vcjob
from contract.documents.elastic_job import PersistedJob
from tests.advisor.workloads.broken_jobs import (
    BROKEN,
    _annotations,
    _labels,
    _policy,
    _restarts,
    second_container,
)
from tests.elastic.jobs import read, size, vcjob, with_kept

if TYPE_CHECKING:
    from collections.abc import Callable


STARTS = "starts the job again in place, with "


def foretold(item: dict[str, Any], *, is_fault: bool = True) -> str:
    """Return what follows the deletion of the pods of ``item``."""
    return follow_up_of_vcjob(read(item), [], is_fault=is_fault)


def _replicas(item: dict[str, Any], count: int) -> None:
    item["spec"]["tasks"][0]["replicas"] = item["spec"]["minAvailable"] = count


def test_a_job_that_meets_all_conditions() -> None:
    assert unmet(read(vcjob())) == ()


@pytest.mark.parametrize(("name", "spoil", "text"), BROKEN)
def test_each_condition_that_is_not_met_is_named_with_a_remedy_and_allows_no_start(
    name: str, spoil: Callable[[dict[str, Any]], object], text: str
) -> None:
    for size_ in (4, 6):
        item = vcjob(replicas=size_)
        spoil(item)
        (one,) = unmet(read(item))
        assert one.name == name
        assert text.format(size=size_) in one.text
        assert STARTS not in foretold(item)


def test_each_condition_is_tested() -> None:
    single = {"divisible", "one-container"}
    assert {name for name, _, _ in BROKEN} | single == {one.name for one in CONDITIONS}


def test_a_single_pod_needs_two_chips_in_one_container() -> None:
    assert unmet(read(vcjob(replicas=1))) == ()
    small, item = vcjob(replicas=1, cards=1), vcjob(replicas=1)
    assert [one.name for one in unmet(read(small))] == ["divisible"]
    second_container(item)
    assert [one.name for one in unmet(read(item))] == ["one-container"]
    assert not any(STARTS in foretold(one) for one in (small, item))
    several = vcjob(replicas=2)
    second_container(several)
    assert unmet(read(several)) == ()


@pytest.mark.parametrize(
    "met",
    [
        lambda one: _restarts(one, 0),
        lambda one: _policy(one, {"events": ["PodFailed", "PodEvicted"], "action": "AbortJob"}),
        lambda one: _policy(one, {"event": "*", "action": "TerminateJob"}),
        lambda one: one["spec"].update(ttlSecondsAfterFinished=3600),
        lambda one: one["spec"].update(minSuccess=4),
        lambda one: _labels(one).update({"process-recover-enable": "off"}),
        lambda one: _annotations(one).update(minReplicas="4"),
    ],
)
def test_values_at_the_limit_meet_the_condition(met: Callable[[dict[str, Any]], object]) -> None:
    item = vcjob()
    met(item)
    assert unmet(read(item)) == ()


def test_a_policy_of_the_task_goes_before_that_of_the_job() -> None:
    item = vcjob()
    item["spec"]["tasks"][0]["policies"] = [{"event": "PodEvicted", "action": "RestartTask"}]
    assert [one.name for one in unmet(read(item))] == ["policy"]
    assert STARTS not in foretold(item)


def test_a_size_that_we_wrote_leaves_the_original() -> None:
    item = with_kept(vcjob(), PersistedJob(size(4), size(2), "x", 1, 5))
    assert original_of(read(item)) == size(4)
    assert unmet(read(item)) == ()


@pytest.mark.parametrize("replicas", [3, 6])
def test_another_size_is_the_owners_from_then_on(replicas: int) -> None:
    item = with_kept(vcjob(), PersistedJob(size(4), size(2), "x", 1, 5))
    _replicas(item, replicas)
    found = original_of(read(item))
    assert found is not None
    assert found.replicas == replicas


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


def test_no_start_is_foretold_for_a_program_that_failed() -> None:
    assert STARTS not in foretold(vcjob(), is_fault=False)
