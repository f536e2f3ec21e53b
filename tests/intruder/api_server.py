"""The API server of the intruder's table: the shipped manifests, the accounts, and what they try.

All requests are dry runs, so every row meets the same objects.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.intruder.agent_rows import POLICY
from tests.intruder.requests import (
    FOREIGN,
    LEASES,
    NODE_PATH,
    OTHER,
    PUBLIC_FAULT,
    STATUS,
    TENANT,
    create,
    replace,
)
from tests.intruder.table import Actor, Protection, Request
from tests.packaging.accounts import (
    CREATED,
    FORBIDDEN,
    NODE,
    OK,
    REFUSED,
    AgentPod,
    config_map,
)
from tests.parts.controlplane import path_of
from tests.parts.deadlines import wait_until
from tests.parts.kustomize import apply, take_back
from tests.parts.vendors_plugin import account_of, vendors_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.intruder.table import Attempt
    from tests.parts.controlplane import ControlPlane

OVERLAY = "overlays/beside-device-plugin"
_RBAC = "rbac.authorization.k8s.io"
_AT = "2026-01-01T00:00:00Z"
_CONFLICT = 409
_ALL_RIGHTS = "intruder-has-all-rights"
_POLICIES = {
    Protection.OWN_NODE_POLICY: POLICY,
    Protection.DEVICE_INFO_POLICY: "npu-vigil-device-info-writers",
}
_USERS: dict[Actor, dict[str, str]] = {
    Actor.AGENT: {"kind": "ServiceAccount", "namespace": "mindx-dl", "name": "npu-vigil-agent"},
    Actor.TENANT: {"kind": "User", "apiGroup": _RBAC, "name": "stranger"},
    Actor.ADDRESS: {"kind": "User", "apiGroup": _RBAC, "name": "system:anonymous"},
    Actor.PLUGIN: {"kind": "ServiceAccount", "namespace": "kube-system", "name": account_of("")},
}
_TENANT_ROLES = ("system:aggregate-to-view", "system:aggregate-to-edit")
"""The rights of ``view`` and ``edit``: a controller copies them there, which does not run here."""
_PROBES = {
    Actor.AGENT: create("mindx-dl", f"mindx-dl-nodeinfo-{OTHER}"),
    Actor.PLUGIN: replace("kube-system", f"mindx-dl-deviceinfo-{NODE}"),
}
"""A request for each policy that shows whether it is in force."""


def _binding(name: str, actor: Actor, role: str, namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding" if namespace is None else "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [_USERS[actor]],
    }


def _as_kubelets_write_it() -> dict[str, Any]:
    """Return a Node's status, with quantities that the API server may write otherwise."""
    resources = {"cpu": "192000m", "memory": "2113450712Ki", "huawei.com/Ascend910": "8"}
    conditions = [
        {"type": kind, "status": "False", "reason": "Kubelet", "lastHeartbeatTime": _AT}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/{n}:1"], "sizeBytes": n} for n in range(1, 101)]
    return {
        "capacity": resources,
        "allocatable": resources | {"ephemeral-storage": "1.5e12"},
        "conditions": conditions,
        "images": images,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }


def _create(plane: ControlPlane, path: str, body: dict[str, Any]) -> None:
    """Create an object that an earlier test of this API server may have left."""
    status, answer = plane.ask("POST", path, body)
    assert status in (CREATED, _CONFLICT), answer


def _fill(plane: ControlPlane) -> None:
    """Create the objects of the rows as an administrator."""
    plane.request("POST", "/api/v1/nodes", {"metadata": {"name": OTHER}})
    for namespace, name in (
        *(("kube-system", f"mindx-dl-deviceinfo-{node}") for node in (NODE, OTHER)),
        ("mindx-dl", f"mindx-dl-nodeinfo-{NODE}"),
        ("mindx-dl", "cluster-info-device-0"),
        ("kube-system", "coredns"),
        ("mindx-dl", "rings-config-train"),
        ("mindx-dl", "other"),
        (TENANT, "rings-config-train"),
        (TENANT, "own"),
    ):
        plane.request("POST", *config_map(namespace, name))
    plane.request("POST", *config_map("mindx-dl", "public-faults", labels=PUBLIC_FAULT))
    for name in (f"npu-vigil-{NODE}", f"npu-vigil-{OTHER}", "npu-vigil-aggregator"):
        plane.request("POST", LEASES, {"metadata": {"name": name}})
    named = {"metadata": {"name": "own"}}
    _create(plane, LEASES.replace("mindx-dl", TENANT), named)
    subject = {"involvedObject": {"namespace": "kube-system"}, "metadata": {"name": "any"}}
    _create(plane, "/api/v1/namespaces/kube-system/events", subject)
    spec = {"containers": [{"name": "any", "image": "any"}]}
    body = {"metadata": {"name": "train-0"}, "spec": spec}
    plane.request("POST", f"/api/v1/namespaces/{TENANT}/pods", body)
    plane.request("PATCH", STATUS, {"status": _as_kubelets_write_it()})
    kept = {FOREIGN: "kept"}
    labels = kept | {"huawei.com/Ascend910-Recover": "", "accelerator": "any"}
    plane.request("PATCH", NODE_PATH, {"metadata": {"labels": labels, "annotations": kept}})


class ApiServer:
    """An API server with the overlay beside a Device Plugin, and an account of each actor."""

    def __init__(self, plane: ControlPlane, items: list[dict[str, Any]]) -> None:
        self.plane = plane
        self._items = items
        self._removed: tuple[Actor, tuple[Protection, ...]] | None = None
        account = plane.service_account
        self.accounts = {
            Actor.AGENT: AgentPod(plane, account("mindx-dl", "npu-vigil-agent", NODE)),
            Actor.TENANT: AgentPod(plane, plane.kubeconfig_of("stranger-token")),
            Actor.ADDRESS: AgentPod(plane, None),
            Actor.PLUGIN: AgentPod(plane, account("kube-system", account_of(""), NODE)),
        }

    def refusing(self, actor: Actor, attempt: Attempt) -> Protection | None:
        """Try a request; return what refuses it, or ``None``.

        Raises ``AssertionError`` for another refusal than that of a role or a policy.
        """
        assert isinstance(attempt, Request)
        status, answer = self.accounts[actor].ask(*attempt)
        if status in (OK, CREATED):
            return None
        if status == FORBIDDEN and _POLICIES[Protection.DEVICE_INFO_POLICY] in answer:
            return Protection.DEVICE_INFO_POLICY
        if status == FORBIDDEN and "cannot" in answer:
            return Protection.ROLE
        assert status == REFUSED, (status, answer)
        assert POLICY in answer, answer
        assert NODE in answer, answer
        return Protection.OWN_NODE_POLICY

    def remove(self, actor: Actor, protections: tuple[Protection, ...]) -> None:
        """Remove these protections of an actor's account, and restore all others."""
        if (actor, protections) == self._removed:
            return
        self.restore()
        self._removed = actor, protections
        for item in self._bindings():
            self.plane.request("DELETE", path_of(item))
        if Protection.ROLE in protections:
            self.plane.apply(_binding(_ALL_RIGHTS, actor, "cluster-admin"))

    def restore(self) -> None:
        """Restore all protections."""
        self.plane.ask("DELETE", path_of(_binding(_ALL_RIGHTS, Actor.AGENT, "cluster-admin")))
        for item in self._bindings():
            self.plane.apply(item)
        self._removed = None
        self.wait_for_policies()

    def _bindings(self) -> list[dict[str, Any]]:
        """Return the bindings of the policies that are removed."""
        _, protections = self._removed or (None, ())
        names = {_POLICIES.get(protection) for protection in protections}
        return [
            item
            for item in self._items
            if item["kind"] == "ValidatingAdmissionPolicyBinding"
            and item["metadata"]["name"] in names
        ]

    def wait_for_policies(self) -> None:
        """Wait until both policies refuse: they take effect after a short time."""
        for actor, request in _PROBES.items():
            wait_until(partial(self.refusing, actor, request), f"the policy for {actor.value}")


@contextmanager
def api_server(plane: ControlPlane) -> Iterator[ApiServer]:
    """Apply the overlay, the vendor's objects and the tenant's rights; remove them at the end."""
    plane.recover()
    plane.clean()
    items = vendors_objects("")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
    items.append(namespace)
    items += [_binding(role, Actor.TENANT, role, TENANT) for role in _TENANT_ROLES]
    try:
        for item in items:
            plane.apply(item)
        items += apply(plane, OVERLAY)
        server = ApiServer(plane, items)
        _fill(plane)
        server.wait_for_policies()
        yield server
        server.restore()
    finally:
        take_back(plane, items)
