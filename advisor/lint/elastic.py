"""Elastic training: everything that has to hold at once (``consumers#2.9``, 5.3, R60)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.lint.labels import RING_CONTROLLER
from advisor.lint.workload import Form
from contract.scheduling import (
    ELASTIC_SCHEDULING,
    FAULT_SCHEDULING,
    FAULT_SCHEDULING_GRACE,
    MIN_REPLICAS,
    go_integer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import Finding, Place
    from advisor.lint.workload import Elastic, Text, Workload

_RING_VALUE = "ascend-910"
_RESTART = "RestartJob"
_ENDS = (_RESTART, "TerminateJob", "AbortJob")


def judge(workload: Workload, grace_over_time: int) -> Iterator[Finding]:
    """Return each condition of elastic training that does not hold."""
    switch = workload.labels.get(ELASTIC_SCHEDULING)
    if switch is None or switch.value != "on":
        return
    here = workload.place.at(switch.line, switch.file)
    if workload.form is not Form.VCJOB or workload.elastic is None:
        why = "only Jobs of Volcano can be trained elastically"
        yield _condition(here, why, "Use a Job of batch.volcano.sh/v1alpha1.")
        return
    yield from _judge_labels(workload)
    yield from _judge_minimum(workload, workload.elastic)
    yield from _judge_restart(workload, workload.elastic)
    elastic = workload.elastic
    if elastic.vnpu is not None:
        why = f"{elastic.vnpu.value} is a part of a chip"
        place = workload.place.at(elastic.vnpu.line)
        yield _condition(place, why, "Ask for whole chips, such as huawei.com/Ascend910.")
    if elastic.replicas == 1:
        yield finding("ELASTIC_ONE_REPLICA", here)
    if elastic.sizes is not None:
        yield from _judge_storage(*elastic.sizes, grace_over_time, workload.place)


def _judge_labels(workload: Workload) -> Iterator[Finding]:
    labels, place = workload.labels, workload.place.at(workload.labels_line)
    scheduling = labels.get(FAULT_SCHEDULING)
    if scheduling is None or scheduling.value != FAULT_SCHEDULING_GRACE:
        where = place if scheduling is None else place.at(scheduling.line)
        shown = "is missing" if scheduling is None else f"is {scheduling.value}"
        why = f"fault-scheduling {shown}, and it has to be grace"
        yield _condition(where, why, 'Write fault-scheduling: "grace"')
    ring = labels.get(RING_CONTROLLER)
    if ring is None or ring.value != _RING_VALUE:
        where = place if ring is None else place.at(ring.line)
        shown = "is missing" if ring is None else f"is {ring.value}"
        why = f"{RING_CONTROLLER} {shown}, so no rank table is made"
        yield _condition(where, why, f"Write {RING_CONTROLLER}: {_RING_VALUE}")


def _judge_minimum(workload: Workload, elastic: Elastic) -> Iterator[Finding]:
    most = elastic.replicas
    shown = "the number of replicas" if most is None else most
    minimum = workload.annotations.get(MIN_REPLICAS)
    if minimum is None:
        place = workload.place.at(workload.annotations_line)
        yield finding("ELASTIC_MIN_REPLICAS", place, why="is missing", replicas=shown)
        return
    value = go_integer(minimum.value)
    if value is None or value < 1 or (most is not None and value > most):
        place = workload.place.at(minimum.line)
        why = f"{minimum.value or '(empty)'} is no number from 1 to {shown}"
        yield finding("ELASTIC_MIN_REPLICAS", place, why=why, replicas=shown)


def _judge_restart(workload: Workload, elastic: Elastic) -> Iterator[Finding]:
    """What the job controller does once the pods are deleted (consumers#2.9)."""
    action = elastic.evicted
    policies = workload.place.at(elastic.policies_line)
    if action is None or action.value not in _ENDS:
        why = (
            "Without a policy for PodEvicted the job controller makes each pod anew at once, at "
            "the full size"
            if action is None
            else f"{action.value} does not end the job"
        )
        place = policies if action is None else workload.place.at(action.line)
        yield finding("ELASTIC_POLICY", place, why=why)
        return
    retry = elastic.max_retry
    if action.value == _RESTART and (retry is None or go_integer(retry.value) != 0):
        place = workload.place.at(elastic.spec_line if retry is None else retry.line)
        value = "missing, which is 3," if retry is None else retry.value
        yield finding("ELASTIC_MAX_RETRY", place, value=value)
    elif action.value == _RESTART and elastic.generated_claim is not None:
        place = workload.place.at(elastic.generated_claim.line)
        yield finding("ELASTIC_MAX_RETRY_LOST", place)


def _judge_storage(size: Text, rate: Text, grace: int, place: Place) -> Iterator[Finding]:
    amount, speed = go_integer(size.value), go_integer(rate.value)
    if amount is not None and speed is not None and speed > 0 and amount > speed * grace:
        yield finding(
            "CHECKPOINT_SLOWER_THAN_GRACE",
            place.at(size.line),
            size=f"{amount} bytes",
            seconds=-(-amount // speed),
            rate=f"{speed} bytes a second",
            grace=grace,
        )


def _condition(place: Place, why: str, instead: str) -> Finding:
    return finding("ELASTIC_CONDITION", place, why=why, instead=instead)
