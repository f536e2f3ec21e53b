"""Advice in the aggregator: what makes it look again, and which sessions it assumes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from advisor.inputs import kubernetes_objects
from advisor.snapshot import AscendJob, PodGroup
from aggregator.advising.answers import NewestReports
from aggregator.advising.cluster_objects import KINDS, AdvisedObjects, rules_in
from aggregator.advising.outcomes import Watched
from aggregator.advising.sessions import PERIOD_MS, Sessions
from aggregator.advising.status import (
    AdviceAbout,
    AdviceStatus,
    changes_of,
    without_placement,
)
from aggregator.api.feature_metrics import _advice
from stores.cluster import KindUnavailable, Update
from stores.cluster import Snapshot as Listed
from stores.interruption import Interrupted
from tests.advisor.controllers.motor_services import S, labels_of, rule_text
from tests.aggregator.advising.advised import NOW_MS, decided, filled, ill
from tests.parts.kubernetes_object import made_of
from tests.vigil.advise import cluster


def test_a_session_each_period_while_a_job_waits() -> None:
    found, sessions = filled(cluster.two_pods_on_two_of_three_nodes()), Sessions()
    sessions.look(found.snapshot(NOW_MS))
    assert (sessions.count, sessions.next_ms, decided(sessions)) == (1, None, [])
    assert ill(found, NOW_MS + 300)
    sessions.look(found.snapshot(NOW_MS + 300))
    assert (sessions.count, sessions.next_ms) == (1, NOW_MS + PERIOD_MS)
    assert decided(sessions) == [("FORCE_DELETE", 2)], "shown before the session comes"
    sessions.look(found.snapshot(NOW_MS + PERIOD_MS))
    assert (sessions.count, sessions.next_ms) == (2, NOW_MS + 2 * PERIOD_MS)
    assert decided(sessions) == [("FORCE_DELETE", 2)]
    sessions.look(found.snapshot(NOW_MS + 2 * PERIOD_MS))
    assert decided(sessions) == [("WAIT_COMPLETION", 0)]


def test_a_clock_that_was_set_back_begins_a_session() -> None:
    found, sessions = filled(cluster.two_pods_on_two_of_three_nodes()), Sessions()
    sessions.look(found.snapshot(NOW_MS))
    sessions.look(found.snapshot(NOW_MS - 60_000))
    assert sessions.count == 2


def test_remaining_retries_are_those_that_the_scheduler_has_written() -> None:
    items = cluster.two_pods_on_two_of_three_nodes(
        {"fault-scheduling": "force", "fault-retry-times": "3"}
    )
    items[4]["status"] = {"phase": "Failed", "containerStatuses": []}
    for left, deletes in ((1, [("FORCE_DELETE", 2)]), (0, [("NONE", 0)])):
        found, sessions = filled(items), Sessions()
        text = json.dumps({"default/j": {"UUID": "default/j", "Times": left}})
        raw = cluster.configmap(
            "volcano-system", "vcjob-fault-npu-cm", text, 5, "remain-retry-times"
        )
        one = kubernetes_objects.configmap(made_of(raw))
        found.observe_objects("retries", Listed({one.uid: one}), NOW_MS)
        sessions.look(found.snapshot(NOW_MS))
        assert decided(sessions) == deletes


def test_a_touch_is_no_change_and_makes_the_document_young() -> None:
    found, sessions = filled(cluster.two_pods_on_two_of_three_nodes()), Sessions()
    (one,) = (m for m in found.snapshot(0).configmaps if m.name == "cluster-info-device-0")
    later = NOW_MS + 3_600_000
    touched = msgspec.structs.replace(one, resource_version="99")
    assert not found.observe_objects("documents", Update(one.uid, touched), later)
    assert not found.observe_objects("documents", Update(one.uid, one), later)
    sessions.look(found.snapshot(later))
    stale = [
        f.object for report in sessions.reports for f in report.findings if f.code == "STALE_INPUT"
    ]
    assert "ConfigMap mindx-dl/cluster-info-device-0" not in stale


def test_a_heartbeat_of_a_kubelet_is_no_change() -> None:
    found = filled([cluster.node("n1")])
    again = cluster.node("n1")
    again["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-23T18:00:00Z"
    node = kubernetes_objects.node(made_of(again))
    assert not found.observe_objects("nodes", Update(node.uid, node), NOW_MS)
    again["status"]["conditions"][0]["status"] = "False"
    node = kubernetes_objects.node(made_of(again))
    assert found.observe_objects("nodes", Update(node.uid, node), NOW_MS)
    assert found.observe_objects("nodes", Update(node.uid, None), NOW_MS)
    assert not found.observe_objects("nodes", Update(node.uid, None), NOW_MS)


@pytest.mark.parametrize("event", [KindUnavailable("no such kind"), Interrupted("forbidden")])
def test_unreadable_kind_is_reported_as_unknown_until_it_is_listed(event: Any) -> None:
    found = AdvisedObjects()
    for name in KINDS:
        found.observe_objects(name, event if name == "vcjobs" else Listed({}), NOW_MS)
    assert found.is_answered
    assert found.unknown == {"vcjobs": event.reason}
    assert found.snapshot(0).unread == {"vcjobs"}
    found.observe_objects("vcjobs", Listed({}), NOW_MS)
    assert found.unknown == {}


_NOT_YET = "it was not listed yet"


def motor() -> AdvisedObjects:
    """Return a service of one job that names a rule and has no pods."""
    found = filled(cluster.two_pods_on_two_of_three_nodes())
    labels = labels_of("g0")
    job = AscendJob("mind", "g0-0", "u-g0-0", labels, replicas=2)
    group = PodGroup("mind", "g0-0-u-g0-0", "g-0", "Inqueue", 2, labels=labels)
    found.observe_objects("ascendjobs", Listed({job.uid: job}), NOW_MS)
    found.observe_objects("podgroups", Update(group.uid, group), NOW_MS)
    assert found.want_rules() == {"mind"}
    return found


def created(found: AdvisedObjects) -> list[tuple[str, str]]:
    """Return the answers of ``upstream`` by job."""
    sessions = Sessions()
    sessions.look(found.snapshot(NOW_MS))
    return [(one.verdict, one.reason) for one in sessions.reports[0].create_advice]


def test_a_scaling_rule_is_looked_for_where_its_job_is() -> None:
    found = motor()
    name, kind = rules_in("mind")
    raw = cluster.configmap("mind", "rule", rule_text(S), 3, "elastic_scaling.json")
    rule = kind.read(made_of(raw))
    assert rule is not None
    assert found.observe_objects(name, Listed({rule.uid: rule}), NOW_MS)
    assert created(found) == [("ALLOW", "")]
    other = cluster.configmap("mind", "other", "", 4)
    assert kind.read(made_of(other)) is None
    assert found.observe_objects(name, Update(rule.uid, None), NOW_MS)
    assert created(found) == [("HOLD", "RULE_MISSING")]


def test_without_its_rule_or_podgroups_a_job_gets_no_answer() -> None:
    """The operator may know what is not known here."""
    found = motor()
    name, _ = rules_in("mind")
    assert (created(found), found.unknown) == ([], {name: _NOT_YET})
    assert found.snapshot(0).unread == {"scalingrules"}
    assert found.is_answered
    found.observe_objects(name, Interrupted("forbidden"), NOW_MS)
    assert (created(found), found.unknown) == ([], {name: "forbidden"})
    found.observe_objects(name, Listed({}), NOW_MS)
    assert found.unknown == {}
    found.observe_objects("podgroups", KindUnavailable("no such kind"), NOW_MS)
    assert created(found) == []


def test_rules_are_forgotten_with_the_last_job_that_names_one() -> None:
    found = motor()
    found.observe_objects("ascendjobs", Listed({}), NOW_MS)
    assert (found.want_rules(), found.unknown) == (frozenset(), {})


def test_rules_of_a_hundred_namespaces_are_followed() -> None:
    found = motor()
    names = (f"n{n:03}" for n in range(120))
    jobs = {name: AscendJob(name, "g0-0", name, labels_of("g0")) for name in names}
    found.observe_objects("ascendjobs", Listed(jobs), NOW_MS)
    assert found.want_rules() == {f"n{n:03}" for n in range(100)}
    assert found.unknown["scalingrules in n119"] == "more than 100 namespaces have some"
    status = AdviceStatus(NOW_MS, not_known={**found.unknown, "vcjobs": "no right"})
    (unread,) = (one for one in _advice(status) if one.name == "npu_vigil_advice_unreadable")
    values = {one.labels["kind"]: one.value for one in unread.samples}
    assert values == {"scalingrules": 120, "vcjobs": 1}, "no series for each namespace"


def test_with_which_grace_pods_began_to_end_is_noted_until_it_is_asked_for() -> None:
    found = filled(cluster.two_pods_on_two_of_three_nodes())
    first, second = found.snapshot(0).pods
    ends = msgspec.structs.replace(first, is_terminating=True, deletion_grace_seconds=30)
    found.observe_objects("pods", Update(first.uid, ends), NOW_MS)
    final = msgspec.structs.replace(ends, deletion_grace_seconds=0)
    found.observe_objects("pods", Update(first.uid, final), NOW_MS)
    found.observe_objects("pods", Update(first.uid, None), NOW_MS)
    assert found.take_watched() == Watched(graces={first.uid: 30})
    assert found.take_watched() == Watched()
    found.observe_objects("pods", Interrupted("away"), NOW_MS)
    found.observe_objects("pods", Listed({}), NOW_MS)
    assert found.take_watched() == Watched(graces={second.uid: None}), "no event showed how it went"
    found.observe_objects("reasons", KindUnavailable("no right"), NOW_MS)
    assert not found.take_watched().records_known


def test_nothing_is_logged_before_nodes_pods_and_documents_were_listed() -> None:
    for missing in ("nodes", "pods", "documents"):
        found = AdvisedObjects()
        for name in KINDS.keys() - {missing}:
            found.observe_objects(name, Listed({}), NOW_MS)
        assert not found.is_answered


def test_objects_go_on_while_they_cannot_be_read() -> None:
    found = filled([cluster.node("n1")])
    assert not found.observe_objects("nodes", Interrupted("away"), NOW_MS)
    assert [one.name for one in found.snapshot(0).nodes] == ["n1"]
    assert found.unknown == {}


def test_pages_have_what_they_are_about() -> None:
    items = cluster.two_pods_on_two_of_three_nodes()
    del items[5]["spec"]["nodeName"]
    items[5]["status"] = {"phase": "Pending"}
    found, sessions = filled(items), Sessions()
    sessions.look(found.snapshot(NOW_MS))
    status = AdviceStatus(NOW_MS, reports=sessions.reports)
    answers = NewestReports(found, lambda: status)

    def placed(answer: AdviceAbout | AdviceStatus) -> list[int]:
        return [len(one.placement) for one in answer.reports]

    assert placed(without_placement(status)) == [0, 0]
    assert [one.node_verdicts for one in without_placement(status).reports] == [(), ()]
    job = answers.of_job("default", "j")
    assert job is not None
    assert (job.podgroups, placed(job)) == (("default/j",), [1, 1])
    assert [len(one.gangs) for one in job.reports] == [1, 1]
    assert [tuple(one.placement[0].refuses) for one in job.reports] == [("n1",)] * 2
    there = answers.of_job("default", "j", "n3")
    assert there is not None
    assert [one.placement[0].accepts for one in there.reports] == [("n3",)] * 2
    assert answers.of_job("default", "k") is None
    page = answers.page_of_node("n1")
    assert page is not None
    for about in (page, answers.of_node("n1")):
        assert [[one.node for one in each.node_verdicts] for each in about.reports] == [["n1"]] * 2
    assert answers.page_of_node("n9") is None


def test_a_job_is_found_by_its_owner() -> None:
    items = cluster.two_pods_on_two_of_three_nodes()
    items[3]["metadata"]["ownerReferences"] = [
        {"kind": "Job", "name": "owner", "uid": "u", "controller": True}
    ]
    found, sessions = filled(items), Sessions()
    ill(found, NOW_MS)
    sessions.look(found.snapshot(NOW_MS))
    answers = NewestReports(found, lambda: AdviceStatus(NOW_MS, reports=sessions.reports))
    job = answers.of_job("default", "owner")
    assert job is not None
    assert job.podgroups == ("default/j",)
    assert [len(one.deletions) for one in job.reports] == [2, 2]


def test_changes_of_decisions_are_reported_once() -> None:
    found, sessions = filled(cluster.two_pods_on_two_of_three_nodes()), Sessions()
    changes = []
    sessions.look(found.snapshot(NOW_MS))
    ill(found, NOW_MS)
    for period in range(1, 5):
        before, now_ms = sessions.reports, NOW_MS + period * PERIOD_MS
        sessions.look(found.snapshot(now_ms))
        changes.append(list(changes_of(sessions.reports, before, now_ms)))
    assert [[(one.profile.value, one.node) for one in one_look] for one_look in changes[:1]] == [
        [("upstream", "n2"), ("corrected", "n2")]
    ]
    actions = [[one.decision.action.value for one in c if one.decision] for c in changes]
    assert actions == [["FORCE_DELETE"] * 2, ["WAIT_COMPLETION"] * 2, [], []]
    over = list(changes_of((), sessions.reports, 0))
    assert [(one.job, one.decision) for one in over] == [("default/j", None)] * 2
