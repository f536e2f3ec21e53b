"""Objects that cannot be read, among others that can."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.fuzz.api_server import Answers, events_of
from contract.kubernetes import Member
from stores.cluster import (
    JobState,
    NodeState,
    ObjectKind,
    PodState,
    SharedReader,
    Snapshot,
    Update,
)
from stores.kubernetes_api.cluster import KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contract.kubernetes import KubernetesObject
    from stores.kubernetes_api.client.attempts import ApiAnswer

LOGGER = "stores.kubernetes_api.feed"
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
_status: Member[dict[str, object]] = Member("status", dict[str, object])
OWNERS = [{"uid": "job-1", "name": "train", "controller": True}]


def a_pod(uid: str, chips: object = "Ascend910-0", **metadata: object) -> dict[str, Any]:
    about = {"uid": uid, "name": f"pod-{uid}", "namespace": "default", "resourceVersion": "8"}
    annotations = {"huawei.com/AscendReal": chips}
    return {
        "metadata": {**about, "annotations": annotations, **metadata},
        "spec": {"nodeName": "n1"},
    }


def a_frame(kind: str, content: object) -> str:
    return json.dumps({"type": kind, "object": content})


def listed(*items: object) -> str:
    return json.dumps({"metadata": {"resourceVersion": "7"}, "items": items})


async def pods(body: str, *frames: str) -> Sequence[object]:
    answers = Answers(body.encode(), "\n".join(frames).encode())
    return await events_of(KubernetesCluster(answers.connection).pods())


def uids(event: object) -> set[str]:
    assert isinstance(event, Snapshot)
    return set(event.items)


BAD_PODS: dict[str, Callable[[str], dict[str, Any]]] = {
    "a number for text": lambda uid: a_pod(uid, 7),
    "a list for an object": lambda uid: a_pod(uid, annotations=[]),
    "too long": lambda uid: a_pod(uid, "x" * 33_000),
    "too long elsewhere": lambda uid: a_pod(uid, labels={"app": "x" * 33_000}),
    "no owner": lambda uid: a_pod(uid, ownerReferences=["train"]),
}


@pytest.mark.parametrize("bad", BAD_PODS.values(), ids=BAD_PODS)
async def test_a_bad_pod_hides_no_other_and_keeps_what_is_known_of_it(
    bad: Callable[[str], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    first, *changes = await pods(
        listed(a_pod("a"), bad("b"), a_pod("c")),
        a_frame("MODIFIED", bad("c")),
        a_frame("MODIFIED", bad("c")),
        a_frame("MODIFIED", a_pod("a", "Ascend910-5")),
        a_frame("ADDED", a_pod("c", "Ascend910-6")),
        a_frame("DELETED", bad("b")),
    )
    assert uids(first) == {"a", "c"}
    assert isinstance(first, Snapshot)
    assert first.unreadable == {"b"}
    shown = [(one.key, one.value and one.value.chips) for one in changes if isinstance(one, Update)]
    assert shown == [("a", ("Ascend910-5",)), ("c", ("Ascend910-6",)), ("b", None)]
    logged = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in logged] == [
        "of the pods default/pod-b cannot be read",
        "of the pods default/pod-c cannot be read",
        "of the pods default/pod-c is gone or can be read again",
        "of the pods default/pod-b is gone or can be read again",
    ]


@pytest.mark.parametrize(
    "text", ['{"metadata":{"uid":5}}', '{"metadata":{}}', "{}", "7"], ids=range(4)
)
async def test_item_that_is_no_object_hides_no_other(text: str) -> None:
    good = json.dumps(a_pod("a"))
    body = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{text},{good}]}}'
    frames = f'{{"type":"ADDED","object":{text}}}', a_frame("ADDED", a_pod("b"))
    first, second = await pods(body, *frames)
    assert uids(first) == {"a"}
    assert isinstance(second, Update)
    assert second.key == "b"


async def test_deeply_nested_page_interrupts_the_watch() -> None:
    """No schema of an API server lets it through."""
    body = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{{"metadata":{{}},"x":{DEEP}}}]}}'
    assert await pods(body) == []


async def test_of_many_that_cannot_be_read_the_log_names_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    (first,) = await pods(listed(*(a_pod(str(number), 7) for number in range(500))))
    assert isinstance(first, Snapshot)
    assert len(first.unreadable) == 500
    assert len(caplog.records) == 100


async def test_a_deletion_of_an_unknown_object_leads_to_a_new_list() -> None:
    body = listed(a_pod("a"))
    frames = a_frame("DELETED", {"metadata": []}), a_frame("ADDED", a_pod("b"))
    assert len(await pods(body, *frames)) == 1  # interrupted


async def test_equal_texts_are_kept_once() -> None:
    """Ten thousand nodes with eight chips each have the same eight names."""
    items = [
        a_pod(uid, "".join(("Ascend910-0,", "Ascend910-1")), ownerReferences=OWNERS, labels=labels)
        for uid, labels in (("a", {"app": "x"}), ("b", {"app": "x"}), ("c", {}), ("d", {}))
    ]
    (first,) = await pods(listed(*items))
    assert isinstance(first, Snapshot)
    found: list[PodState] = list(first.items.values())
    for field in ("chips", "node", "job", "annotations"):
        assert len({id(getattr(pod, field)) for pod in found}) == 1
    assert len({id(pod.labels) for pod in found}) == 2


async def test_two_readers_of_one_watch(caplog: pytest.LogCaptureFixture) -> None:
    """Each has its own objects, keys and refusals; a pod that has ended is gone for the first."""
    caplog.set_level(logging.INFO, LOGGER)
    asked: list[str] = []

    def phase(item: KubernetesObject) -> str:
        text = str(_status(item)["phase"])
        if text == "odd":
            raise ValueError("it has an odd phase")
        return text

    def pod(uid: str, phase: str, chips: object = "Ascend910-0") -> dict[str, Any]:
        return a_pod(uid, chips) | {"status": {"phase": phase}}

    class Server(Answers):
        async def list(self, *arguments: object, **_: object) -> ApiAnswer:
            asked.append(str(arguments[0]))
            return await self.request()

    second: list[object] = []
    kind = ObjectKind("phases", "/api/v1/pods", phase, by_name=True)
    too_long = pod("c", "Failed")
    too_long["metadata"]["annotations"]["hccl/rankIndex"] = "x" * 33_000
    body = listed(pod("a", "Running"), pod("b", "odd"), too_long, pod("d", "Running", 7))
    frames = (
        a_frame("MODIFIED", pod("a", "Succeeded")),
        a_frame("MODIFIED", pod("b", "Running")),
        a_frame("DELETED", pod("c", "Failed")),
    )
    server = Server(body.encode(), "\n".join(frames).encode())
    cluster = KubernetesCluster(server.connection)
    first = await events_of(cluster.pods(SharedReader(kind, second.append)))
    assert isinstance(first[0], Snapshot)
    assert uids(first[0]) == {"a", "b"}
    assert first[0].unreadable == {"d"}
    assert first[1] == Update("a", None)
    assert isinstance(first[2], Update)
    assert first[2].value is not None
    assert first[3] == Update("c", None)
    phases = {"pod-a": "Running", "pod-c": "Failed", "pod-d": "Running"}
    assert second == [
        Snapshot(phases, frozenset({"pod-b"})),
        Update("pod-a", "Succeeded"),
        Update("pod-b", "Running"),
        Update("pod-c", None),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "of the phases default/pod-b cannot be read: it has an odd phase",
        "of the pods default/pod-d cannot be read: "
        "$.metadata.annotations.huawei.com/AscendReal: must be a text, is an integer",
        "of the phases default/pod-b is gone or can be read again",
    ]
    assert ["fieldSelector" in url for url in asked] == [False], "the second needs ended pods, too"


async def test_the_widest_query_of_all_readers_is_that_of_the_watch() -> None:
    asked: list[str] = []

    class Server(Answers):
        async def list(self, *arguments: object, **_: object) -> ApiAnswer:
            asked.append(str(arguments[0]))
            return await self.request()

    names: list[object] = []
    uids_of_all: list[object] = []
    here = {"fieldSelector": "spec.nodeName!="}
    by_name = ObjectKind("names", "/api/v1/pods", lambda item: 1, here, by_name=True)
    by_uid = ObjectKind("uids", "/api/v1/pods", lambda item: 2, here)
    server = Server(listed(a_pod("a")).encode(), b"")
    readers = (SharedReader(by_name, names.append), SharedReader(by_uid, uids_of_all.append))
    await events_of(KubernetesCluster(server.connection).pods(*readers))
    assert names == [Snapshot({"pod-a": 1})]
    assert uids_of_all == [Snapshot({"a": 2})]
    assert ["fieldSelector" in url for url in asked] == [True]
    wide = SharedReader(ObjectKind("all", "/api/v1/pods", lambda item: 3), lambda event: None)
    await events_of(KubernetesCluster(server.connection).pods(*readers, wide))
    assert ["fieldSelector" in url for url in asked] == [True, False]


async def test_nodes_and_pod_groups_that_are_odd() -> None:
    nodes = [
        {"metadata": {"name": "a", "annotations": {"product-serial-number": 7}}},
        {"metadata": {"name": "b"}, "status": {"conditions": {}}},
        {"metadata": {"name": "c"}, "status": {"addresses": [{"type": "InternalIP"}]}},
    ]
    answers = Answers(listed(*nodes).encode(), b"")
    (found,) = await events_of(KubernetesCluster(answers.connection).nodes())
    assert found == Snapshot({"c": NodeState("c", is_ready=False)}, frozenset({"a", "b"}))
    created = "creationTimestamp"
    groups = [
        {"metadata": {"uid": "1", "ownerReferences": OWNERS, created: "yesterday"}},
        {"metadata": {"uid": "2", "ownerReferences": OWNERS, created: "2026-01-01T00:00:00Z"}},
        {"metadata": {"uid": "3", "ownerReferences": OWNERS, created: None}, "spec": 5},
        {"metadata": {"uid": "4"}},
        {"metadata": {"uid": "5", "ownerReferences": OWNERS}, "spec": {"minMember": 4}},
        {"metadata": {"uid": "6", "ownerReferences": OWNERS}, "spec": {"minMember": -1}},
        {"metadata": {"uid": "7", "ownerReferences": OWNERS}, "spec": {"minMember": "4"}},
    ]
    answers = Answers(listed(*groups).encode(), b"")
    (jobs,) = await events_of(KubernetesCluster(answers.connection).jobs())
    two = JobState("job-1", name="train", created_at_ms=1_767_225_600_000)
    three = JobState("job-1", name="train")
    five = JobState("job-1", name="train", size=4)
    known = {"2": two, "3": three, "5": five, "6": three, "7": three}
    assert jobs == Snapshot(known, frozenset({"1"}))
