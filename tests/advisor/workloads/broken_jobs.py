"""Vcjobs that break one condition of elastic training each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.documents.elastic_job import KEPT
from tests.elastic.jobs import CHIPS

if TYPE_CHECKING:
    from collections.abc import Callable


def _labels(item: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = item["metadata"]["labels"]
    return found


def _annotations(item: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = item["metadata"]["annotations"]
    return found


def _resources(item: dict[str, Any]) -> dict[str, Any]:
    containers = item["spec"]["tasks"][0]["template"]["spec"]["containers"]
    found: dict[str, Any] = containers[0]["resources"]
    return found


def _chips(item: dict[str, Any], resource: str, count: str) -> None:
    _resources(item).update(limits={resource: count}, requests={resource: count})


def second_container(item: dict[str, Any]) -> None:
    """Let a second container of each pod ask for chips."""
    containers = item["spec"]["tasks"][0]["template"]["spec"]["containers"]
    containers.append({"name": "more", "resources": {"limits": {CHIPS: "8"}}})


def _second_task(item: dict[str, Any]) -> None:
    item["spec"]["tasks"].append(item["spec"]["tasks"][0])


def _restarts(item: dict[str, Any], retries: int | None) -> None:
    item["spec"]["policies"] = [{"event": "PodEvicted", "action": "RestartJob"}]
    item["spec"]["maxRetry"] = retries


def _policy(item: dict[str, Any], *policies: dict[str, Any]) -> None:
    item["spec"]["policies"] = list(policies)


def _above(item: dict[str, Any]) -> str:
    """Return one pod more than the size of a job."""
    return str(item["spec"]["tasks"][0]["replicas"] + 1)


BROKEN: tuple[tuple[str, Callable[[dict[str, Any]], object], str], ...] = (
    ("state", lambda one: _annotations(one).update({KEPT: "{"}), "remove the annotation"),
    ("fault-scheduling", lambda one: _labels(one).pop("fault-scheduling"), '"grace"'),
    ("fault-scheduling", lambda one: _labels(one).update({"fault-scheduling": "force"}), "grace"),
    ("elastic-scheduling", lambda one: _labels(one).update({"elastic-scheduling": "off"}), '"on"'),
    ("switch", lambda one: _annotations(one).update({"npu-vigil/elastic": "off"}), "elastic on"),
    ("one-task", _second_task, "one task"),
    ("min-replicas", lambda one: _annotations(one).clear(), "is missing"),
    ("min-replicas", lambda one: _annotations(one).update(minReplicas=" 2"), "' 2'"),
    ("min-replicas", lambda one: _annotations(one).update(minReplicas="two"), "1 to {size}"),
    ("min-replicas", lambda one: _annotations(one).update(minReplicas="0"), "1 to {size}"),
    ("min-replicas", lambda one: _annotations(one).update(minReplicas=_above(one)), "1 to {size}"),
    ("whole-chips", lambda one: _resources(one).clear(), "no chips"),
    ("whole-chips", lambda one: _chips(one, "huawei.com/Ascend910-8c", "1"), "whole chips"),
    ("policy", _policy, "TerminateJob"),
    ("policy", lambda one: _restarts(one, 3), "maxRetry 3"),
    ("policy", lambda one: _restarts(one, None), "maxRetry 3"),
    ("policy", lambda one: _policy(one, {"event": "PodEvicted", "action": "RestartTask"}), "end"),
    ("owner", lambda one: one["metadata"].update(ownerReferences=[{"kind": "JobFlow"}]), "owner"),
    (
        "process-recovery",
        lambda one: _labels(one).update({"process-recover-enable": "on"}),
        "remove the label",
    ),
    (
        "process-recovery",
        lambda one: _annotations(one).update(ProcessRecoverStrategy="retry"),
        "remove the annotation",
    ),
    ("min-success", lambda one: one["spec"].update(minSuccess=int(_above(one))), "ss: {size} or"),
    (
        "partition-policy",
        lambda one: one["spec"]["tasks"][0].update(partitionPolicy={"totalPartitions": 2}),
        "remove partitionPolicy",
    ),
    ("lifetime", lambda one: one["spec"].update(ttlSecondsAfterFinished=3599), "3600"),
)
