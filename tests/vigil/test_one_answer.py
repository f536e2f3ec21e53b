"""``vigil lint``, ``vigil elastic show`` and ``vigil advise`` give one answer about one job.

``elastic show`` prints what ``decide`` returns, which is asked here without a cluster.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from advisor.lint.labels import RING_CONTROLLER
from elastic.decision import JobContext, VcjobState, decide
from tests.advisor.workloads.broken_jobs import BROKEN
from tests.elastic.jobs import NOW_MS, as_written, read, vcjob
from tests.vigil.advise.cluster import as_list, named, two_pods_on_two_of_three_nodes
from tests.vigil.advise.running import sessions_of, vigil
from vigil.lint.reading import File
from vigil.lint.run import lint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Object = dict[str, Any]
JOB = "default/j"
_NOT_IN_MANIFESTS = ("state", "elastic-scheduling")
"""What a daemon wrote, and the label without which a manifest does not ask for elastic training."""
_ABOUT_CONDITIONS = frozenset(
    {
        "ELASTIC_CONDITION",
        "ELASTIC_MIN_REPLICAS",
        "ELASTIC_POLICY",
        "ELASTIC_MAX_RETRY",
        "ELASTIC_OFF",
    }
)


def policy(action: str, retries: int | None, event: str = "PodEvicted") -> Callable[[Object], None]:
    """Return what gives a job this policy and ``maxRetry``."""

    def change(item: Object) -> None:
        item["spec"]["policies"] = [{"event": event, "action": action}]
        item["spec"]["maxRetry"] = retries
        if retries is None:
            del item["spec"]["maxRetry"]

    return change


JOBS: list[tuple[str, Callable[[Object], object], bool]] = [
    ("as it is", lambda _: None, True),
    *((f"terminate-{n}", policy("TerminateJob", n), True) for n in (0, 1, None)),
    *((f"abort-{n}", policy("AbortJob", n, "*"), True) for n in (0, 5)),
    ("restart-0", policy("RestartJob", 0), True),
    *((f"restart-{n}", policy("RestartJob", n), False) for n in (1, 3)),
    ("other-event", policy("TerminateJob", 0, "PodFailed"), False),
    ("lives long", lambda one: one["spec"].update(ttlSecondsAfterFinished=3600), True),
    *(
        (f"{index}-{name}", spoil, False)
        for index, (name, spoil, _) in enumerate(BROKEN)
        if name not in _NOT_IN_MANIFESTS
    ),
]


def made(spoil: Callable[[Object], object]) -> Object:
    item = vcjob("j", 2, phase="Running")
    item["metadata"]["labels"][RING_CONTROLLER] = "ascend-910"
    spoil(item)
    return item


def advised(tmp_path: Path, job: Object) -> Object:
    """Return the elastic advice about a job of which a node is unhealthy."""
    items = two_pods_on_two_of_three_nodes()
    owner = {"kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    for one in items:
        if one["kind"] in ("Pod", "PodGroup"):
            one["metadata"]["ownerReferences"] = [owner]
            one["metadata"]["labels"] = {"fault-scheduling": "grace"}
    file = tmp_path / "dump.json"
    file.write_text(as_list([*items, job]))
    options = ("--job", JOB, "--what-if", "n1 UnHealthy", "--json")
    upstream, corrected = sessions_of(vigil("--dump", file, *options))
    assert upstream["elastic_advice"] == corrected["elastic_advice"]
    (found,) = upstream["elastic_advice"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("spoil", "is_elastic"), [one[1:] for one in JOBS], ids=[one[0] for one in JOBS]
)
def test_all_three_give_one_answer(
    tmp_path: Path, spoil: Callable[[Object], object], is_elastic: bool
) -> None:
    manifest = json.dumps(as_written(made(spoil)))
    codes = {one.rule.code for one in lint([File("job.json", manifest)]).findings}
    shown = decide(read(made(spoil)), JobContext(NOW_MS))
    advice = advised(tmp_path, made(spoil))
    answers = {
        "lint": codes.isdisjoint(_ABOUT_CONDITIONS),
        "elastic show": shown.state is not VcjobState.CONDITIONS,
        "advise": advice["replicas"] is not None,
    }
    assert answers == dict.fromkeys(answers, is_elastic), (codes, shown.why, advice)
    if not is_elastic:
        assert advice["why"] == "; ".join(one.text for one in shown.unmet)


@pytest.mark.parametrize(
    ("limit", "retries", "is_bad"),
    [(3, "100", True), (3, "4", True), (3, "3", False), (0, "100", False), (None, "100", False)],
)
def test_a_limit_of_waves_is_judged_the_same(
    tmp_path: Path, limit: int | None, retries: str, is_bad: bool
) -> None:
    """``backoffLimit`` of an AscendJob, which counts waves after faults of hardware, too."""
    labels = {"fault-scheduling": "grace", "fault-retry-times": retries}
    spec: Object = {"runPolicy": {} if limit is None else {"backoffLimit": limit}}
    template = {"spec": {"containers": [{"name": "c"}]}}
    spec["replicaSpecs"] = {"Worker": {"replicas": 1, "template": template}}
    version = "mindxdl.gitee.com/v1"
    job = named("AscendJob", "a", "default", version, metadata={"labels": labels}, spec=spec)
    report = lint([File("job.json", json.dumps(job))])
    by_lint = "RETRY_VS_BACKOFF" in {one.rule.code for one in report.findings}
    file = tmp_path / "dump.json"
    file.write_text(as_list([*two_pods_on_two_of_three_nodes(), job]))
    found = sessions_of(vigil("--dump", file, "--json"))[0]["findings"]
    by_advise = "RETRY_VS_BACKOFF" in {one["code"] for one in found}
    assert (by_lint, by_advise) == (is_bad, is_bad)
