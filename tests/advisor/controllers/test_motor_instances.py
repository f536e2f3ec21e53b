"""MindIE Motor: partial losses, concurrent candidates, waves, and flaws of jobs (R51 to R53)."""

from __future__ import annotations

import json

import msgspec
import pytest

from advisor.checks.motor import service_findings
from advisor.controllers.motor_instances import creation_advice, creation_divergences
from advisor.options import AdvisorOptions, Profile
from advisor.snapshot import (
    AscendJob,
    ClusterSnapshot,
    ControllingOwner,
    PodGroup,
    SchedulerPod,
    StoredConfigMap,
)
from tests.advisor.controllers.motor_services import (
    Entries,
    S,
    advised,
    labels_of,
    rule_text,
    service,
)

JOB = AscendJob("ns", "g0-a", "u-a", {**labels_of("g0"), "app": "mindie-ms-server"}, replicas=2)


def with_job(
    pods: int,
    phase: str,
    entries: Entries,
    *,
    running: dict[str, int] | None = None,
    job: AscendJob = JOB,
    version: str = "0",
) -> ClusterSnapshot:
    """Return a service with ``job`` that has so many pods and a PodGroup in ``phase``."""
    rest = service(entries, running or {}, ())
    group = PodGroup("ns", f"{job.name}-{job.uid}", "", phase, 2, labels=job.labels)
    made = tuple(
        SchedulerPod(
            "ns",
            f"{job.name}-{index}",
            f"p-{index}",
            labels={"version": version},
            owner=ControllingOwner("AscendJob", job.name, job.uid),
            phase="Running",
        )
        for index in range(pods)
    )
    return msgspec.structs.replace(
        rest,
        pods=made,
        podgroups=(*rest.podgroups, group),
        ascend_jobs=(*rest.ascend_jobs, job),
    )


def test_a_job_with_all_its_pods_gets_no_advice() -> None:
    assert advised(with_job(2, "Running", S), Profile.UPSTREAM) == {}


def test_pods_that_are_deleted_now_count_as_gone() -> None:
    snapshot = with_job(2, "Running", S, running={"g0": 1, "g1": 1})
    (one,) = creation_advice(snapshot, AdvisorOptions(), leaving={"p-0", "p-1"})
    assert (one.verdict, one.dest_index, one.current) == ("ALLOW", 0, {"g0": 1, "g1": 1})


def test_a_partial_loss_looks_satisfied_to_the_operator() -> None:
    """Defect 8-28: the running PodGroup of the job itself counts."""
    snapshot = with_job(1, "Running", S, running={"g0": 1, "g1": 1})
    upstream = advised(snapshot, Profile.UPSTREAM)["g0-a"]
    assert (upstream.verdict, upstream.reason, upstream.dest_index) == ("HOLD", "AT_TARGET", None)
    corrected = advised(snapshot, Profile.CORRECTED)["g0-a"]
    assert (corrected.verdict, corrected.dest_index) == ("ALLOW", 0)


def test_a_starting_instance_takes_its_place_only_when_corrected() -> None:
    """Defect 8-27: the operator counts running PodGroups only."""
    starting = with_job(2, "Inqueue", S)
    other = service(S, {}, ("g0",))
    snapshot = msgspec.structs.replace(
        starting,
        podgroups=(*starting.podgroups, *other.podgroups),
        ascend_jobs=(*starting.ascend_jobs, *other.ascend_jobs),
    )
    assert advised(snapshot, Profile.UPSTREAM)["g0-new0"].verdict == "ALLOW"
    corrected = advised(snapshot, Profile.CORRECTED)["g0-new0"]
    assert (corrected.verdict, corrected.reason) == ("HOLD", "GROUP_SATISFIED")


@pytest.mark.parametrize("free", [0, 1, 2, 3])
def test_no_more_jobs_than_free_places_when_corrected(free: int) -> None:
    """consumers#P8: and they are the first ones by name."""
    snapshot = service([{"g0": 3}], {"g0": 3 - free} if free < 3 else {}, ("g0",) * 4)
    corrected = advised(snapshot, Profile.CORRECTED)
    allowed = [name for name, one in corrected.items() if one.verdict == "ALLOW"]
    assert allowed == [f"g0-new{index}" for index in range(free)]
    upstream = advised(snapshot, Profile.UPSTREAM)
    assert {one.verdict for one in upstream.values()} == {"ALLOW" if free else "HOLD"}


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("phase", ["", "Pending"])
def test_the_podgroup_comes_first(phase: str, profile: Profile) -> None:
    snapshot = with_job(0, phase, S)
    one = advised(snapshot, profile)["g0-a"]
    assert (one.verdict, one.reason, one.dest_index) == ("HOLD", "PG_PENDING", 1)
    broken = StoredConfigMap("ns", "rule", {"elastic_scaling.json": "{"})
    for maps in ((), (broken,)):
        other = msgspec.structs.replace(snapshot, configmaps=maps)
        one = advised(other, profile)["g0-a"]
        assert (one.verdict, one.reason, one.dest_index) == ("HOLD", "PG_PENDING", None)


@pytest.mark.parametrize("profile", Profile)
def test_a_podgroup_without_a_group_stops_the_service(profile: Profile) -> None:
    snapshot = with_job(0, "Inqueue", S)
    labels = {"mind-cluster/scaling-rule": "rule", "jobID": "svc"}
    odd = PodGroup("ns", "odd", "", "Pending", labels=labels)
    other = PodGroup("elsewhere", "odd", "", "Pending", labels=labels)
    assert advised(_and_group(snapshot, other), profile)["g0-a"].verdict == "ALLOW"
    one = advised(_and_group(snapshot, odd), profile)["g0-a"]
    assert (one.verdict, one.reason) == ("HOLD", "PG_WITHOUT_GROUP")


def _and_group(snapshot: ClusterSnapshot, group: PodGroup) -> ClusterSnapshot:
    return msgspec.structs.replace(snapshot, podgroups=(*snapshot.podgroups, group))


@pytest.mark.parametrize("profile", Profile)
def test_a_rule_of_another_namespace_is_no_rule(profile: Profile) -> None:
    snapshot = with_job(0, "Inqueue", S)
    moved = StoredConfigMap("default", "rule", {"elastic_scaling.json": rule_text(S)})
    snapshot = msgspec.structs.replace(snapshot, configmaps=(moved,))
    one = advised(snapshot, profile)["g0-a"]
    assert (one.verdict, one.reason) == ("HOLD", "RULE_MISSING")
    (finding,) = service_findings(snapshot, AdvisorOptions(profile=profile))
    assert (finding.code, finding.object) == ("RULE_MISSING", "AscendJob ns/g0-a")
    assert "it is in namespace default" in finding.text


@pytest.mark.parametrize(
    ("backoff", "retries", "version", "exhausted"),
    [
        (3, "100000000", "2", False),
        (3, "100000000", "3", True),
        (None, "3", "3", True),
        (None, None, "9", False),
        (0, "3", "9", False),
        (None, "100000000", "9", False),
    ],
)
@pytest.mark.parametrize("profile", Profile)
def test_the_budget_of_waves(
    backoff: int | None, retries: str | None, version: str, exhausted: bool, profile: Profile
) -> None:
    labels = {**JOB.labels, **({} if retries is None else {"fault-retry-times": retries})}
    job = msgspec.structs.replace(JOB, labels=labels, backoff_limit=backoff)
    snapshot = with_job(1, "Inqueue", S, job=job, version=version)
    one = advised(snapshot, profile)["g0-a"]
    assert (one.reason == "BACKOFF_EXHAUSTED") is exhausted
    assert one.verdict == ("HOLD" if exhausted else "ALLOW")
    codes = {
        finding.code for finding in service_findings(snapshot, AdvisorOptions(profile=profile))
    }
    assert ("BACKOFF_EXHAUSTED" in codes) is exhausted
    assert ("RETRY_VS_BACKOFF" in codes) is (backoff == 3)


def test_retries_that_are_no_number() -> None:
    job = msgspec.structs.replace(JOB, labels={**JOB.labels, "fault-retry-times": "1_0"})
    one = advised(with_job(0, "Inqueue", S, job=job), Profile.UPSTREAM)["g0-a"]
    assert (one.verdict, one.reason) == ("HOLD", "RETRY_TIMES_INVALID")


def _codes(snapshot: ClusterSnapshot) -> list[str]:
    return [one.code for one in service_findings(snapshot, AdvisorOptions())]


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({}, []),
        ({"app": "mindeie-ms-server"}, ["APP_TYPO"]),
        ({"app": "mindie-ms-serv"}, ["APP_TYPO"]),
        ({"app": "ms-server"}, []),
        ({"jobID": ""}, ["INVALID_SCALING_CONFIG", "JOB_ID_MISSING"]),
        ({"mind-cluster/group-name": ""}, ["INVALID_SCALING_CONFIG"]),
        ({"mind-cluster/group-name": "g7"}, ["GROUP_NOT_IN_RULE"]),
        ({"mind-cluster/scaling-rule": "other"}, ["RULE_MISSING"]),
    ],
)
def test_flaws_of_a_server_job(changed: dict[str, str], codes: list[str]) -> None:
    job = msgspec.structs.replace(JOB, labels={**JOB.labels, **changed})
    assert _codes(with_job(2, "Running", S, job=job)) == codes


def test_an_invalid_rule_is_a_finding() -> None:
    assert _codes(with_job(2, "Running", [{"g0": 1}, {"g0": 2}])) == ["RULE_INVALID"]


@pytest.mark.parametrize(
    ("label", "left", "codes"),
    [
        ("3", 1, []),
        ("3", 0, ["FAILED_POD_ENDS_JOB"]),
        ("3", None, []),
        ("0", 1, ["FAILED_POD_ENDS_JOB"]),
    ],
)
def test_a_failed_pod_needs_a_retry(label: str, left: int | None, codes: list[str]) -> None:
    """consumers#3.6: the operator asks what the scheduler has written."""
    job = msgspec.structs.replace(JOB, labels={**JOB.labels, "fault-retry-times": label})
    snapshot = with_job(2, "Running", S, job=job)
    failed = msgspec.structs.replace(snapshot.pods[0], phase="Failed")
    snapshot = msgspec.structs.replace(snapshot, pods=(failed, snapshot.pods[1]))
    if left is not None:
        text = json.dumps({"ns/g0-a-u-a": {"UUID": "ns/g0-a-u-a", "Times": left}})
        written = StoredConfigMap(
            "volcano-system", "vcjob-fault-npu-cm", {"remain-retry-times": text}
        )
        snapshot = msgspec.structs.replace(snapshot, configmaps=(*snapshot.configmaps, written))
    assert _codes(snapshot) == codes


def _differs(snapshot: ClusterSnapshot) -> dict[str, int]:
    found = creation_divergences(snapshot, AdvisorOptions(profile=Profile.CORRECTED))
    assert creation_divergences(snapshot, AdvisorOptions()) == ()
    return {one.object.rpartition("/")[2]: one.section for one in found}


def test_where_the_operator_answers_otherwise() -> None:
    assert _differs(service(S, {}, ("g0", "g1"))) == {}
    assert _differs(service([{"p": 2, "d": 1}, {"p": 1}], {}, ("p", "d"))) == {"d-new0": 25}
    assert _differs(service([{"g0": 2}, {"g0": 0}], {}, ("g0",))) == {"g0-new0": 26}
    assert _differs(service([{"g0": 1}], {}, ("g0", "g0"))) == {"g0-new1": 27}
    assert _differs(with_job(1, "Running", S, running={"g0": 1, "g1": 1})) == {"g0-a": 28}
