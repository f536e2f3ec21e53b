"""What each reader of Kubernetes' objects makes of members that are null, wrong or missing.

An API server sends none of these; a dump by hand, or a program that answers in its place, may.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from advisor.inputs import kubernetes_objects
from benchmarks.fuzz.api_server import Answers, events_of
from contract.errors import DocumentError
from elastic.job import read_group, read_pod, read_queue
from stores.cluster import Snapshot
from stores.kubernetes_api.cluster import KubernetesCluster
from stores.kubernetes_api.nodes import not_ready_since_ms
from stores.kubernetes_api.objects import KubernetesObjects
from stores.kubernetes_api.pods_with_chips import follow_pods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    Reader = Callable[[bytes], Awaitable[object]]

Object = dict[str, Any]
MemberPath = tuple[str | int, ...]

_METADATA: Object = {
    "name": "a",
    "namespace": "training",
    "uid": "u-1",
    "resourceVersion": "8",
    "creationTimestamp": "2026-11-21T12:00:00Z",
    "deletionTimestamp": "2026-11-21T12:00:01Z",
    "deletionGracePeriodSeconds": 30,
    "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j-1", "controller": True}],
}
_TERM = {
    "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
_POD: Object = {
    "metadata": {
        **_METADATA,
        "labels": {"app": "mindie-ms-a", "jobID": "7", "fault-type": "software"},
        "annotations": {
            "huawei.com/AscendReal": "Ascend910-0",
            "huawei.com/Ascend910": "Ascend910-1",
            "hccl/rankIndex": "3",
            "scheduling.k8s.io/group-name": "g",
        },
    },
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "trainer",
        "schedulerName": "volcano",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 3,
        "nodeSelector": {"k": "v"},
        "overhead": {"cpu": "1"},
        "tolerations": [{"key": "t", "operator": "Equal", "value": "x", "effect": "NoExecute"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"a": "b"}},
                        "namespaces": ["training"],
                    }
                ]
            },
        },
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "9"}}}],
        "containers": [
            {
                "name": "c",
                "command": ["python"],
                "args": ["train.py"],
                "env": [{"name": "VC_TASK_INDEX", "value": "3"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"huawei.com/Ascend910": "2"}},
            }
        ],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.0.2",
        "containerStatuses": [
            {
                "name": "c",
                "restartCount": 2,
                "state": {"terminated": {"exitCode": 1}},
                "lastState": {"terminated": {"exitCode": 2}},
            }
        ],
    },
}
_NODE: Object = {
    "metadata": {
        **_METADATA,
        "labels": {"accelerator": "huawei-Ascend910"},
        "annotations": {"product-serial-number": "S1"},
    },
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "t", "value": "x", "effect": "NoSchedule"}],
    },
    "status": {
        "capacity": {"cpu": "4"},
        "allocatable": {"cpu": "3"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T12:00:00Z"}
        ],
    },
}
_GROUP: Object = {
    "metadata": {
        **_METADATA,
        "labels": {"app": "a", "framework": "pytorch"},
        "annotations": {"recover-strategy": "retry"},
    },
    "spec": {"minMember": 4, "minResources": {"cpu": "4"}},
    "status": {"phase": "Running"},
}
_QUEUE: Object = {"metadata": _METADATA, "status": {"state": "Closed"}}


class Refused(NamedTuple):
    """The answer of a reader that refuses an object."""

    reason: str


def _plain(read: Callable[[msgspec.Raw], object]) -> Reader:
    async def answer(content: bytes) -> object:
        try:
            return read(msgspec.Raw(content))
        except (ValueError, DocumentError) as error:
            return Refused(str(error))

    return answer


def _followed(follow: Callable[[Answers], AsyncIterator[Any]]) -> Reader:
    """Return what answers with the object of a list of one, as a feed yields it."""

    async def answer(content: bytes) -> object:
        answers = Answers(_listed(content), b"")
        events = await events_of(follow(answers))
        if not events:
            return Refused("nothing of the list counts")
        (listed,) = events
        assert isinstance(listed, Snapshot)
        return Refused("named in the log") if listed.unreadable else listed.items

    return answer


async def _commands(content: bytes) -> object:
    try:
        return await KubernetesObjects(Answers(_listed(content), b"").connection).commands("n1")
    except msgspec.DecodeError as error:
        return Refused(str(error))


def _listed(content: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"7"},"items":[%b]}' % content


def _cluster(answers: Answers) -> KubernetesCluster:
    return KubernetesCluster(answers.connection)


READERS: dict[str, tuple[Object, dict[str, Reader]]] = {
    "pods": (
        _POD,
        {
            "usage": _followed(lambda answers: follow_pods(answers.connection, "n1")),
            "cluster": _followed(lambda answers: _cluster(answers).pods()),
            "commands": _commands,
            "advice": _plain(kubernetes_objects.pod),
            "elastic": _plain(read_pod),
        },
    ),
    "nodes": (
        _NODE,
        {
            "cluster": _followed(lambda answers: _cluster(answers).nodes()),
            "unready": _plain(not_ready_since_ms),
            "advice": _plain(kubernetes_objects.node),
        },
    ),
    "groups": (
        _GROUP,
        {
            "cluster": _followed(lambda answers: _cluster(answers).jobs()),
            "advice": _plain(kubernetes_objects.pod_group),
            "elastic": _plain(read_group),
        },
    ),
    "queues": (_QUEUE, {"elastic": _plain(read_queue)}),
}


def _paths(value: object, here: MemberPath = ()) -> Iterator[MemberPath]:
    """Yield the path of each member in an object, at any depth."""
    if here:
        yield here
    members = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in (*members, *items):
        yield from _paths(inner, (*here, key))


def _changed(whole: Object, path: MemberPath, change: str) -> bytes:
    """Return ``whole`` with the member at ``path`` null, of a wrong type or missing."""
    changed = copy.deepcopy(whole)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    if change == "missing":
        del place[path[-1]]
    elif change == "null":
        place[path[-1]] = None
    else:
        place[path[-1]] = {"a": [5]} if isinstance(place[path[-1]], list) else [5]
    return json.dumps(changed).encode()


async def _answers(whole: Object, path: MemberPath, read: Reader, plain: object) -> str:
    """Return what ``read`` makes of a member that is null, wrong, missing: a letter for each.

    ``r``: the object is refused; ``-``: the answer stays; ``m``: it is that without the member;
    ``o``: another one. ``plain`` is the answer to the whole object.
    """
    missing = await read(_changed(whole, path, "missing"))
    others = [await read(_changed(whole, path, change)) for change in ("null", "wrong")]
    letters = ""
    for answer in (*others, missing):
        if isinstance(answer, Refused):
            letters += "r"
        elif answer == plain:
            letters += "-"
        else:
            letters += "m" if answer == missing else "o"
    return letters


def _recorded() -> dict[str, list[str]]:
    """Return the lines of the recorded tables, each by its kind, without its head."""
    tables: dict[str, list[str]] = {}
    for table in (Path(__file__).parent / "kubernetes_answers.txt").read_text().split("\n\n"):
        head, *rows = table.strip().splitlines()
        tables[head.split()[0]] = [head, *rows]
    return tables


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
async def test_each_reader_keeps_its_answer(kind: str) -> None:
    """``kubernetes_answers.txt`` has a line for each member, and a column for each reader."""
    whole, readers = READERS[kind]
    rows = [" ".join((kind, *readers))]
    plain = {name: await read(json.dumps(whole).encode()) for name, read in readers.items()}
    for path in _paths(whole):
        letters = [await _answers(whole, path, read, plain[name]) for name, read in readers.items()]
        rows.append(" ".join((":".join(map(str, path)), *letters)))
    assert rows == _recorded()[kind]


@pytest.mark.parametrize("kind", READERS)
async def test_each_reader_reads_the_whole_object(kind: str) -> None:
    whole, readers = READERS[kind]
    for name, read in readers.items():
        assert not isinstance(await read(json.dumps(whole).encode()), Refused), name
