"""What the token of one agent's pod tries at the API server.

``WRITES`` has the rows of the table in ``docs/installation.md``, in its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.intruder.requests import (
    FOREIGN,
    LEASES,
    NODE_PATH,
    OTHER,
    PUBLIC_FAULT,
    RANK_TABLE,
    STATUS,
    TENANT,
    create,
    create_lease,
    create_many,
    create_pod,
    delete,
    event,
    lease,
    patch,
    pod,
    read,
    replace,
)
from tests.intruder.table import Actor, Gap, Protection, Request, Row, Thing, Verb
from tests.packaging.accounts import NODE, REPORT

if TYPE_CHECKING:
    from collections.abc import Iterable

POLICY = "npu-vigil-agent-own-node-only"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_REFUSED = (Protection.OWN_NODE_POLICY,)
_FORBIDDEN = (Protection.ROLE,)
_FORBIDDEN_AND_REFUSED = (Protection.ROLE, Protection.OWN_NODE_POLICY)
_MAY: tuple[Protection, ...] = ()
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "none"}


def _rows(
    about: str,
    protections: tuple[Protection, ...],
    attempts: Iterable[tuple[Thing, Verb, Request]],
) -> list[Row]:
    return [
        Row(Actor.AGENT, thing, verb, about, request, protections)
        for thing, verb, request in attempts
    ]


def _writes(
    about: str, protections: tuple[Protection, ...], thing: Thing, *requests: Request
) -> list[Row]:
    return _rows(
        about,
        protections,
        (
            (thing, Verb.DELETE if request.method == "DELETE" else Verb.WRITE, request)
            for request in requests
        ),
    )


WRITES: tuple[Row, ...] = (
    *_writes(
        "its device-info",
        _MAY,
        Thing.DOCUMENTS,
        replace("kube-system", f"mindx-dl-deviceinfo-{NODE}", REPORT),
        delete("kube-system", f"mindx-dl-deviceinfo-{NODE}"),
    ),
    *_writes(
        "its node-info",
        _MAY,
        Thing.DOCUMENTS,
        replace("mindx-dl", f"mindx-dl-nodeinfo-{NODE}", REPORT),
        delete("mindx-dl", f"mindx-dl-nodeinfo-{NODE}"),
    ),
    *_writes(
        "its two documents of public faults",
        _MAY,
        Thing.DOCUMENTS,
        create("mindx-dl", f"npu-vigil-dpc-fault-{NODE}", PUBLIC_FAULT),
        create("mindx-dl", f"npu-vigil-dtfs-fault-{NODE}", PUBLIC_FAULT),
    ),
    *_writes(
        "the label of public faults, or any other, on its device-info or node-info",
        _REFUSED,
        Thing.LABELS,
        replace("kube-system", f"mindx-dl-deviceinfo-{NODE}", PUBLIC_FAULT | REPORT),
        replace("mindx-dl", f"mindx-dl-nodeinfo-{NODE}", PUBLIC_FAULT),
        replace("mindx-dl", f"mindx-dl-nodeinfo-{NODE}", {"npu-vigil/state": "x"}),
    ),
    *_writes(
        "the label of device-info, or any other, on its documents of public faults",
        _REFUSED,
        Thing.LABELS,
        create("mindx-dl", f"npu-vigil-dpc-fault-{NODE}", REPORT),
        create("mindx-dl", f"npu-vigil-dtfs-fault-{NODE}", PUBLIC_FAULT | REPORT),
    ),
    *_writes(
        "a document of another node",
        _REFUSED,
        Thing.DOCUMENTS,
        replace("kube-system", f"mindx-dl-deviceinfo-{OTHER}", REPORT),
        create("mindx-dl", f"mindx-dl-nodeinfo-{OTHER}", REPORT),
        create("mindx-dl", f"npu-vigil-dpc-fault-{OTHER}", PUBLIC_FAULT),
        create("mindx-dl", f"npu-vigil-dtfs-fault-{OTHER}", PUBLIC_FAULT),
        delete("kube-system", f"mindx-dl-deviceinfo-{OTHER}"),
    ),
    *_writes(
        "a name of its own in the other namespace, or one that belongs to its Lease",
        _REFUSED,
        Thing.DOCUMENTS,
        create("mindx-dl", f"mindx-dl-deviceinfo-{NODE}", REPORT),
        create("kube-system", f"npu-vigil-dpc-fault-{NODE}", PUBLIC_FAULT),
        create("mindx-dl", f"npu-vigil-{NODE}"),
    ),
    *_writes(
        "a document of the aggregator",
        _REFUSED,
        Thing.DOCUMENTS,
        replace("mindx-dl", "cluster-info-device-0"),
        delete("mindx-dl", "cluster-info-device-0"),
        create("mindx-dl", "npu-vigil-state-one", {"npu-vigil/state": "one"}),
    ),
    *_writes(
        "another ConfigMap of kube-system, such as coredns",
        _REFUSED,
        Thing.DOCUMENTS,
        replace("kube-system", "coredns"),
        delete("kube-system", "coredns"),
    ),
    *_writes(
        "a rank table in mindx-dl",
        _REFUSED,
        Thing.RANK_TABLES,
        create("mindx-dl", "rings-config-job", RANK_TABLE),
        delete("mindx-dl", "rings-config-train"),
    ),
    *_writes(
        "its heartbeat",
        _MAY,
        Thing.LEASES,
        lease(f"npu-vigil-{NODE}", **{"npu-vigil/heartbeat": "true"}),
    ),
    *_writes(
        "the heartbeat of another node, or another label on its own",
        _REFUSED,
        Thing.LEASES,
        lease(f"npu-vigil-{OTHER}"),
        lease(f"npu-vigil-{NODE}", other="label"),
    ),
    *_writes(
        "the Lease by which aggregators elect their leader",
        _REFUSED,
        Thing.LEASES,
        lease("npu-vigil-aggregator"),
    ),
    *_writes(
        "labels and annotations that it keeps on its Node",
        _MAY,
        Thing.LABELS,
        patch(STATUS, metadata={"labels": {"accelerator": "huawei-Ascend910"}}),
        patch(STATUS, metadata={"labels": {"huawei.com/Ascend910-Recover": None}}),
        patch(STATUS, metadata={"annotations": {"baseDeviceInfos": "{}"}}),
        patch(STATUS, metadata={"annotations": {"noded/heartbeat": "1"}}),
    ),
    *_writes(
        "other labels and annotations of its Node",
        _REFUSED,
        Thing.LABELS,
        patch(STATUS, metadata={"labels": {"node-role.kubernetes.io/control-plane": ""}}),
        patch(STATUS, metadata={"labels": {"node-restriction.kubernetes.io/team": "a"}}),
        patch(STATUS, metadata={"labels": {FOREIGN: "changed"}}),
        patch(STATUS, metadata={"annotations": {FOREIGN: "changed"}}),
    ),
    *_rows(
        "other labels and annotations of its Node",
        _REFUSED,
        (
            (Thing.LABELS, Verb.DELETE, patch(STATUS, metadata={"labels": {FOREIGN: None}})),
            (Thing.LABELS, Verb.DELETE, patch(STATUS, metadata={"annotations": {FOREIGN: None}})),
        ),
    ),
    *_writes(
        "the status of its Node: capacity, conditions, addresses",
        _REFUSED,
        Thing.NODE_STATUS,
        patch(STATUS, status={"capacity": {"huawei.com/Ascend910": "99"}}),
        patch(STATUS, status={"allocatable": {"huawei.com/Ascend910": "99"}}),
        patch(STATUS, status={"conditions": [{"type": "Ready", "status": "True"}]}),
        patch(STATUS, status={"images": []}),
        patch(STATUS, status={"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}),
    ),
    *_writes(
        "finalizers and owners of its Node",
        _REFUSED,
        Thing.NODE_STATUS,
        patch(STATUS, metadata={"finalizers": ["example.com/never"]}),
        patch(STATUS, metadata={"ownerReferences": [_OWNER]}),
    ),
    *_writes(
        "anything of another Node",
        _REFUSED,
        Thing.NODE_STATUS,
        patch(f"/api/v1/nodes/{OTHER}/status", metadata={"labels": {"accelerator": "none"}}),
        patch(f"/api/v1/nodes/{OTHER}/status", status={"capacity": {"huawei.com/Ascend910": "0"}}),
    ),
    *_writes(
        "Events that name its node as their source",
        _MAY,
        Thing.EVENTS,
        event(NODE, "Node", NODE),
        event(NODE, "ConfigMap", "mindx-dl-fault-config"),
    ),
    *_writes(
        "Events in the name of another node, or about another Node",
        _REFUSED,
        Thing.EVENTS,
        event(OTHER, "Node", OTHER),
        event("", "Node", NODE),
        event(NODE, "Node", OTHER),
    ),
    *_rows(
        "taints and cordoning, Secrets, pods, the policy itself",
        _FORBIDDEN,
        (
            (Thing.NODE_STATUS, Verb.WRITE, patch(NODE_PATH, spec={"unschedulable": True})),
            (
                Thing.DOCUMENTS,
                Verb.WRITE,
                Request("POST", "/api/v1/namespaces/mindx-dl/secrets", {"metadata": {"name": "a"}}),
            ),
            (Thing.PODS, Verb.WRITE, create_pod("mindx-dl")),
            (Thing.PODS, Verb.DELETE, Request("DELETE", pod(TENANT, "train-0"))),
            (Thing.DOCUMENTS, Verb.DELETE, Request("DELETE", f"{POLICIES}/{POLICY}")),
        ),
    ),
)

ROWS: tuple[Row, ...] = (
    *WRITES,
    *_rows(
        "any ConfigMap of kube-system and mindx-dl",
        _MAY,
        (
            (Thing.DOCUMENTS, Verb.READ, read("kube-system", "coredns")),
            (Thing.LABELS, Verb.READ, read("kube-system", f"mindx-dl-deviceinfo-{OTHER}")),
            (Thing.RANK_TABLES, Verb.READ, read("mindx-dl", "rings-config-train")),
        ),
    ),
    *_rows(
        "ConfigMaps of other namespaces, and Secrets",
        _FORBIDDEN,
        (
            (Thing.DOCUMENTS, Verb.READ, read(TENANT, "own")),
            (Thing.RANK_TABLES, Verb.READ, read(TENANT, "rings-config-train")),
            (Thing.DOCUMENTS, Verb.READ, Request("GET", "/api/v1/namespaces/mindx-dl/secrets")),
        ),
    ),
    *_rows(
        "ConfigMaps under names without end",
        _REFUSED,
        (
            (Thing.DOCUMENTS, Verb.FLOOD, create_many("mindx-dl", "npu-vigil-", PUBLIC_FAULT)),
            (Thing.RANK_TABLES, Verb.FLOOD, create_many("mindx-dl", "rings-config-", RANK_TABLE)),
        ),
    ),
    *_rows(
        "labels without end on its Node",
        _REFUSED,
        [
            (
                Thing.LABELS,
                Verb.FLOOD,
                patch(STATUS, metadata={"labels": {f"example.com/{n}": "" for n in range(100)}}),
            )
        ],
    ),
    *_rows(
        "Events",
        _FORBIDDEN,
        [(Thing.EVENTS, Verb.READ, Request("GET", "/api/v1/namespaces/kube-system/events"))],
    ),
    *_rows(
        "Events and Leases",
        _FORBIDDEN_AND_REFUSED,
        (
            (
                Thing.EVENTS,
                Verb.DELETE,
                Request("DELETE", "/api/v1/namespaces/kube-system/events/any"),
            ),
            (Thing.LEASES, Verb.DELETE, Request("DELETE", f"{LEASES}/npu-vigil-{OTHER}")),
        ),
    ),
    *_rows(
        "Events of its node without end, which the API server keeps for an hour",
        _MAY,
        [(Thing.EVENTS, Verb.FLOOD, event(NODE, "Node", NODE))],
    ),
    *_rows(
        "any Lease of mindx-dl",
        _MAY,
        [(Thing.LEASES, Verb.READ, Request("GET", f"{LEASES}/npu-vigil-{OTHER}"))],
    ),
    *_rows(
        "Leases under names without end",
        _REFUSED,
        [(Thing.LEASES, Verb.FLOOD, create_lease({"generateName": "npu-vigil-"}))],
    ),
    *_rows(
        "all Nodes",
        _MAY,
        [(Thing.NODE_STATUS, Verb.READ, Request("GET", "/api/v1/nodes"))],
    ),
    *_rows(
        "Nodes",
        _FORBIDDEN,
        (
            (Thing.NODE_STATUS, Verb.DELETE, Request("DELETE", NODE_PATH)),
            (
                Thing.NODE_STATUS,
                Verb.FLOOD,
                Request("POST", "/api/v1/nodes", {"metadata": {"generateName": "any-"}}),
            ),
        ),
    ),
    *_rows(
        "all pods, because RBAC has no rule for those of a node (decision 007)",
        _MAY,
        [(Thing.PODS, Verb.READ, Request("GET", "/api/v1/pods"))],
    ),
    *_rows("pods", _FORBIDDEN, [(Thing.PODS, Verb.FLOOD, create_pod(TENANT))]),
    *_rows(
        "rank tables of other namespaces",
        _FORBIDDEN_AND_REFUSED,
        (
            (Thing.RANK_TABLES, Verb.WRITE, create(TENANT, "rings-config-job", RANK_TABLE)),
            (Thing.RANK_TABLES, Verb.DELETE, delete(TENANT, "rings-config-train")),
        ),
    ),
)

GAPS = (
    Gap(
        Actor.AGENT,
        (Thing.TOPICS, Thing.WILLS),
        "the broker takes certificates and passwords, and no token",
    ),
    Gap(
        Actor.AGENT,
        (Thing.GRPC, Thing.PAGES),
        "no token counts for gRPC and pages; its pod is an address of the pod network",
    ),
    Gap(
        Actor.AGENT,
        (Thing.SOCKETS, Thing.FILES),
        "a token opens no file; who has the pod is root on its node",
    ),
)
