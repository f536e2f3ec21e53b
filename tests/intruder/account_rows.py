"""What a tenant, a taken Device Plugin and a client without credentials try at the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.intruder.requests import (
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

_FORBIDDEN = (Protection.ROLE,)
_REFUSED = (Protection.DEVICE_INFO_POLICY,)
_MAY: tuple[Protection, ...] = ()
_DEVICE_INFO = f"mindx-dl-deviceinfo-{NODE}"
_NODE_INFO = f"mindx-dl-nodeinfo-{NODE}"
_CORDON = patch(NODE_PATH, spec={"unschedulable": True})
_READY = patch(STATUS, status={"conditions": [{"type": "Ready", "status": "True"}]})
_LABEL = {"labels": {"accelerator": "none"}}
_AGENT_POD = pod("mindx-dl", f"npu-vigil-agent-{NODE}")
_TENANT_POD = pod(TENANT, "train-0")
_TENANT_LEASE = f"{LEASES.replace('mindx-dl', TENANT)}/own"
_NODES = Request("POST", "/api/v1/nodes", {"metadata": {"generateName": "any-"}})


def _rows(
    actor: Actor,
    about: str,
    protections: tuple[Protection, ...],
    *attempts: tuple[Thing, Verb, Request],
) -> Iterable[Row]:
    for thing, verb, request in attempts:
        yield Row(actor, thing, verb, about, request, protections)


def _of_the_system(actor: Actor) -> Iterable[Row]:
    """Yield what neither a tenant nor a client without credentials may do with any object."""
    yield from _rows(
        actor,
        "in kube-system, mindx-dl or cluster-system",
        _FORBIDDEN,
        (Thing.DOCUMENTS, Verb.READ, read("kube-system", _DEVICE_INFO)),
        (Thing.DOCUMENTS, Verb.READ, read("mindx-dl", "cluster-info-device-0")),
        (Thing.DOCUMENTS, Verb.WRITE, replace("kube-system", _DEVICE_INFO, REPORT)),
        (Thing.DOCUMENTS, Verb.WRITE, replace("mindx-dl", _NODE_INFO, REPORT)),
        (Thing.DOCUMENTS, Verb.WRITE, replace("mindx-dl", "cluster-info-device-0")),
        (Thing.DOCUMENTS, Verb.WRITE, create("cluster-system", "any", PUBLIC_FAULT)),
        (Thing.DOCUMENTS, Verb.DELETE, delete("kube-system", _DEVICE_INFO)),
        (Thing.DOCUMENTS, Verb.FLOOD, create_many("mindx-dl", "any-", PUBLIC_FAULT)),
        (Thing.LABELS, Verb.READ, Request("GET", NODE_PATH)),
        (Thing.LABELS, Verb.WRITE, patch(NODE_PATH, metadata=_LABEL)),
        (Thing.LABELS, Verb.DELETE, patch(NODE_PATH, metadata={"labels": {"accelerator": None}})),
        (Thing.LABELS, Verb.FLOOD, patch(NODE_PATH, metadata={"labels": {"example.com/1": ""}})),
        (Thing.EVENTS, Verb.READ, Request("GET", "/api/v1/namespaces/kube-system/events")),
        (Thing.EVENTS, Verb.WRITE, event(NODE, "Node", NODE)),
        (
            Thing.EVENTS,
            Verb.DELETE,
            Request("DELETE", "/api/v1/namespaces/kube-system/events/any"),
        ),
        (Thing.EVENTS, Verb.FLOOD, event(NODE, "ConfigMap", "any", "mindx-dl")),
        (Thing.LEASES, Verb.READ, Request("GET", f"{LEASES}/npu-vigil-{NODE}")),
        (Thing.LEASES, Verb.WRITE, lease(f"npu-vigil-{NODE}")),
        (Thing.LEASES, Verb.WRITE, lease("npu-vigil-aggregator")),
        (Thing.LEASES, Verb.DELETE, Request("DELETE", f"{LEASES}/npu-vigil-{NODE}")),
        (Thing.LEASES, Verb.FLOOD, create_lease({"generateName": "npu-vigil-"})),
        (Thing.NODE_STATUS, Verb.READ, Request("GET", STATUS)),
        (Thing.NODE_STATUS, Verb.WRITE, _READY),
        (Thing.NODE_STATUS, Verb.WRITE, _CORDON),
        (Thing.NODE_STATUS, Verb.DELETE, Request("DELETE", NODE_PATH)),
        (Thing.NODE_STATUS, Verb.FLOOD, _NODES),
        (Thing.PODS, Verb.READ, Request("GET", _AGENT_POD)),
        (Thing.PODS, Verb.WRITE, patch(_AGENT_POD, metadata=_LABEL)),
        (Thing.PODS, Verb.DELETE, Request("DELETE", _AGENT_POD)),
        (Thing.PODS, Verb.FLOOD, create_pod("mindx-dl")),
        (Thing.RANK_TABLES, Verb.READ, read("mindx-dl", "rings-config-train")),
        (Thing.RANK_TABLES, Verb.WRITE, create("mindx-dl", "rings-config-job", RANK_TABLE)),
        (Thing.RANK_TABLES, Verb.DELETE, delete("mindx-dl", "rings-config-train")),
        (Thing.RANK_TABLES, Verb.FLOOD, create_many("mindx-dl", "rings-config-", RANK_TABLE)),
    )


ROWS: tuple[Row, ...] = (
    *_of_the_system(Actor.TENANT),
    *_rows(
        Actor.TENANT,
        "in its own namespace",
        _MAY,
        (Thing.DOCUMENTS, Verb.READ, read(TENANT, "own")),
        (Thing.LEASES, Verb.READ, Request("GET", _TENANT_LEASE)),
        (Thing.PODS, Verb.READ, Request("GET", _TENANT_POD)),
        (Thing.PODS, Verb.WRITE, patch(_TENANT_POD, metadata=_LABEL)),
        (Thing.PODS, Verb.DELETE, Request("DELETE", _TENANT_POD)),
        (Thing.RANK_TABLES, Verb.READ, read(TENANT, "rings-config-train")),
        (Thing.RANK_TABLES, Verb.WRITE, create(TENANT, "rings-config-job", RANK_TABLE)),
        (Thing.RANK_TABLES, Verb.DELETE, delete(TENANT, "rings-config-train")),
    ),
    *_rows(
        Actor.TENANT,
        "public faults in its own namespace, which `public_faults.namespaces` excludes",
        _MAY,
        (Thing.DOCUMENTS, Verb.WRITE, create(TENANT, "any", PUBLIC_FAULT)),
        (Thing.DOCUMENTS, Verb.FLOOD, create_many(TENANT, "any-", PUBLIC_FAULT)),
    ),
    *_of_the_system(Actor.ADDRESS),
    *_rows(
        Actor.PLUGIN,
        "device-info of any node",
        _REFUSED,
        (Thing.DOCUMENTS, Verb.WRITE, replace("kube-system", _DEVICE_INFO, REPORT)),
        (Thing.DOCUMENTS, Verb.WRITE, create("kube-system", f"mindx-dl-deviceinfo-{OTHER}.x")),
        (Thing.DOCUMENTS, Verb.FLOOD, create_many("kube-system", "mindx-dl-deviceinfo-")),
        (Thing.LABELS, Verb.WRITE, replace("kube-system", _DEVICE_INFO, PUBLIC_FAULT | REPORT)),
        (Thing.LABELS, Verb.DELETE, replace("kube-system", _DEVICE_INFO)),
    ),
    *_rows(
        Actor.PLUGIN,
        "documents of agents and the aggregator, fault configurations and public faults",
        _REFUSED,
        (Thing.DOCUMENTS, Verb.WRITE, replace("mindx-dl", _NODE_INFO, REPORT)),
        (Thing.DOCUMENTS, Verb.WRITE, replace("mindx-dl", "cluster-info-device-0")),
        (Thing.DOCUMENTS, Verb.WRITE, create("mindx-dl", "npu-vigil-state-one")),
        (Thing.DOCUMENTS, Verb.WRITE, create("kube-system", "mindx-dl-fault-config")),
        (Thing.DOCUMENTS, Verb.WRITE, create("cluster-system", "clusterd-manual-info-cm")),
        (Thing.DOCUMENTS, Verb.WRITE, create("cluster-system", "statistic-fault-info")),
        (Thing.DOCUMENTS, Verb.WRITE, create("cluster-system", "any", PUBLIC_FAULT)),
        (Thing.DOCUMENTS, Verb.FLOOD, create_many("mindx-dl", "any-", PUBLIC_FAULT)),
        (Thing.LABELS, Verb.WRITE, replace("mindx-dl", "other", PUBLIC_FAULT)),
        (Thing.LABELS, Verb.DELETE, replace("mindx-dl", "public-faults")),
    ),
    *_rows(
        Actor.PLUGIN,
        "its own documents of tasks",
        _MAY,
        (Thing.DOCUMENTS, Verb.WRITE, create("kube-system", "reset-config-job")),
        (Thing.DOCUMENTS, Verb.WRITE, create("mindx-dl", "reset-config-job")),
    ),
    *_rows(
        Actor.PLUGIN,
        "by the vendor's role",
        _MAY,
        (Thing.DOCUMENTS, Verb.READ, read("mindx-dl", "cluster-info-device-0")),
        (Thing.LABELS, Verb.READ, Request("GET", NODE_PATH)),
        (Thing.LABELS, Verb.FLOOD, patch(NODE_PATH, metadata={"labels": {"example.com/1": ""}})),
        (Thing.EVENTS, Verb.WRITE, event(NODE, "Node", NODE)),
        (Thing.EVENTS, Verb.FLOOD, event(NODE, "ConfigMap", "any", "mindx-dl")),
        (Thing.NODE_STATUS, Verb.READ, Request("GET", STATUS)),
        (Thing.NODE_STATUS, Verb.WRITE, _READY),
        (Thing.PODS, Verb.READ, Request("GET", _AGENT_POD)),
        (Thing.PODS, Verb.WRITE, patch(_AGENT_POD, metadata=_LABEL)),
        (Thing.RANK_TABLES, Verb.READ, read(TENANT, "rings-config-train")),
        (Thing.RANK_TABLES, Verb.WRITE, create(TENANT, "rings-config-job", RANK_TABLE)),
        (Thing.RANK_TABLES, Verb.FLOOD, create_many(TENANT, "rings-config-", RANK_TABLE)),
    ),
    *_rows(
        Actor.PLUGIN,
        "what the vendor's role does not grant",
        _FORBIDDEN,
        (Thing.DOCUMENTS, Verb.DELETE, delete("kube-system", _DEVICE_INFO)),
        (Thing.EVENTS, Verb.READ, Request("GET", "/api/v1/namespaces/kube-system/events")),
        (
            Thing.EVENTS,
            Verb.DELETE,
            Request("DELETE", "/api/v1/namespaces/kube-system/events/any"),
        ),
        (Thing.LEASES, Verb.READ, Request("GET", f"{LEASES}/npu-vigil-{NODE}")),
        (Thing.LEASES, Verb.WRITE, lease(f"npu-vigil-{NODE}")),
        (Thing.LEASES, Verb.DELETE, Request("DELETE", f"{LEASES}/npu-vigil-{NODE}")),
        (Thing.LEASES, Verb.FLOOD, create_lease({"generateName": "npu-vigil-"})),
        (Thing.NODE_STATUS, Verb.DELETE, Request("DELETE", NODE_PATH)),
        (Thing.NODE_STATUS, Verb.FLOOD, _NODES),
        (Thing.PODS, Verb.DELETE, Request("DELETE", _AGENT_POD)),
        (Thing.PODS, Verb.FLOOD, create_pod("mindx-dl")),
        (Thing.RANK_TABLES, Verb.DELETE, delete(TENANT, "rings-config-train")),
    ),
)

GAPS = (
    *(
        Gap(
            actor,
            (Thing.TOPICS, Thing.WILLS),
            "the broker takes certificates and passwords, and no token",
        )
        for actor in (Actor.TENANT, Actor.PLUGIN)
    ),
    *(
        Gap(
            actor,
            (Thing.GRPC, Thing.PAGES),
            "no token counts for gRPC and pages; its pod is an address of the pod network",
        )
        for actor in (Actor.TENANT, Actor.PLUGIN)
    ),
    Gap(
        Actor.TENANT,
        (Thing.SOCKETS, Thing.FILES),
        "a pod without `hostPath` has no file of the node; with it the pod is a local user",
    ),
    Gap(
        Actor.PLUGIN,
        (Thing.SOCKETS, Thing.FILES),
        "a token opens no file; who has the pod is root on its node",
    ),
)
