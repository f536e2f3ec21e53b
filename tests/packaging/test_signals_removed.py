"""What options for schedulers have written goes, whichever of option and component goes first.

A real API server has the components, and the aggregator has the token of its account. No scheduler
and no controller manager run here, so a rule stays without an effect.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.device_taints import Device, rule_name
from contract.node_signals import CONDITION_TYPES, TAINT_KEY
from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.aggregator.leaders import LEASE_SECONDS
from tests.aggregator.nodes import faulty, report
from tests.parts import device_objects
from tests.parts.controlplane import path_of
from tests.parts.deadlines import until, wait_until
from tests.parts.device_objects import RULES
from tests.parts.kustomize import build_with, object_of, take_back
from tests.parts.verbs import run_vigil

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

NODE = "/api/v1/nodes/n1"
COMPONENTS = ("node-conditions", "node-taints", "device-taints")
POLICIES = ("own-rules-only",)
RULE = rule_name(Device("npu.huawei.com", "n1", "npu-3"))
FOREIGN_TAINT = {"key": "other", "value": "v", "effect": "NoSchedule"}
FOREIGN_RULE = {"metadata": {"name": "site"}, "spec": {"taint": {"key": "site", "effect": "None"}}}
READY = {"type": "Ready", "status": "True"}
OFF = {"VIGIL_LEADER_LEASE_SECONDS": str(LEASE_SECONDS)}
"""Its Lease runs out soon: the verb waits for that."""
ON = {
    "VIGIL_NODE_CONDITIONS_ENABLED": "true",
    "VIGIL_NODE_TAINTS_ENABLED": "true",
    "VIGIL_NODE_TAINTS_CHIPS": "any",
    "VIGIL_NODE_TAINTS_NO_SCHEDULE_LEVELS": "RestartNPU",
    "VIGIL_DEVICE_TAINTS_ENABLED": "true",
    **OFF,
}
SWITCHED_OFF = (
    "node_conditions is off: no Node has its conditions any more",
    "node_taints is off: no Node has its taint any more",
    "device_taints is off: none of its rules is left",
)


_META = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "caller-of-uninstall"}}
OF_CALLER: list[dict[str, Any]] = [
    {
        **_META,
        "kind": "ClusterRole",
        "rules": [
            {"apiGroups": [group], "resources": resources, "verbs": verbs}
            for group, resources, verbs in (
                ("", ["configmaps"], ["get", "list", "update", "delete"]),
                ("", ["nodes"], ["list"]),
                ("coordination.k8s.io", ["leases"], ["get", "list", "delete"]),
                ("resource.k8s.io", ["devicetaintrules"], ["list", "delete"]),
                ("batch.volcano.sh", ["jobs"], ["list"]),
            )
        ],
    },
    {
        **_META,
        "kind": "ClusterRoleBinding",
        "subjects": [{"kind": "User", "name": "stranger", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "caller-of-uninstall",
        },
    },
]
"""Rights that an uninstall needs, without that to write Nodes."""


class Site:
    """A cluster with the components, a faulty node, and an aggregator that is restarted."""

    def __init__(self, plane: ControlPlane, items: list[dict[str, Any]], state: Path) -> None:
        self.plane = plane
        names = tuple(f"npu-vigil-aggregator-{name}" for name in (*COMPONENTS, *POLICIES))
        self._of_signals = [item for item in items if item["metadata"]["name"] in names]
        assert len(self._of_signals) == 4 * len(COMPONENTS), "a role, a policy, and their bindings"
        kubeconfig = plane.service_account("mindx-dl", "npu-vigil-aggregator")
        self.daemon = Daemon(state, "--store", "kubernetes:", "--kubeconfig", str(kubeconfig))
        self.store: Store = open_store("kubernetes:", plane.kubeconfig)

    def grant(self) -> None:
        """Give the aggregator's account the rights of the components."""
        for item in self._of_signals:
            self.plane.apply(item)

    def take_verb(self, component: str, resource: str, verb: str) -> None:
        """Take one verb out of the rights of a component."""
        name = f"npu-vigil-aggregator-{component}"
        role = object_of(self._of_signals, "ClusterRole", name)
        rules = [
            rule | {"verbs": [has for has in rule["verbs"] if has != verb]}
            if resource in rule["resources"]
            else rule
            for rule in role["rules"]
        ]
        assert rules != role["rules"]
        self.plane.apply(role | {"rules": rules})

    def revoke(self) -> None:
        """Remove these rights, as the removal of the components does."""
        for item in self._of_signals:
            self.plane.ask("DELETE", path_of(item))
        user = "system:serviceaccount:mindx-dl:npu-vigil-aggregator"
        # The API server observes its own rules by a watch.
        wait_until(
            lambda: (
                not self.plane.may(user, "patch", "nodes")
                and not self.plane.may(user, "delete", "resource.k8s.io/devicetaintrules")
            ),
            "the rights are gone",
        )

    async def run(self, environment: dict[str, str]) -> None:
        """Restart the aggregator."""
        self.daemon.stop()
        self.daemon.environment = environment
        await asyncio.to_thread(self.daemon.start)

    async def writes(self, options: set[str]) -> None:
        """Run the aggregator with all options, until it has written for these ones alone."""
        await self.run(ON)
        await until(
            lambda: self.written() == options,
            lambda: f"{options} have written: {self.written()}\n{self.daemon.log.read_text()}",
            60,
        )

    def written(self) -> set[str]:
        """Return which options have something of theirs on the API server."""
        node = self.plane.request("GET", NODE)
        types = {condition["type"] for condition in node["status"].get("conditions", ())}
        keys = {taint["key"] for taint in node["spec"].get("taints", ())}
        rules = {item["metadata"]["name"] for item in self.plane.request("GET", RULES)["items"]}
        assert "Ready" in types
        assert "other" in keys
        assert "site" in rules
        return {
            *({"node_conditions"} if types & set(CONDITION_TYPES) else ()),
            *({"node_taints"} if TAINT_KEY in keys else ()),
            *({"device_taints"} if RULE in rules else ()),
        }

    def warnings(self, text: str = "left of an option that is off") -> list[str]:
        """Return the warnings of ``/readyz`` with a text."""
        warnings: list[str] = self.daemon.ask("/readyz")[1].get("warnings", [])
        return [warning for warning in warnings if text in warning]

    async def uninstall(self, kubeconfig: Path, *options: str) -> tuple[int, str]:
        """Run ``vigil uninstall``; return its status and what it printed."""
        where = ("--store", "kubernetes:", "--kubeconfig", str(kubeconfig))
        environment = {"VIGIL_TOUCH_PERIOD_SECONDS": "1"}
        status, lines, errors = await asyncio.to_thread(
            partial(run_vigil, "uninstall", *where, *options, **environment)
        )
        return status, "\n".join([*lines, errors])


EVERY = {"node_conditions", "node_taints", "device_taints"}


@pytest.fixture
async def site(
    control_plane: ControlPlane, items: list[dict[str, Any]], tmp_path: Path
) -> AsyncIterator[Site]:
    """Yield a cluster with the account of the aggregator and a faulty node.

    The policies concern this account only, so other tests do not meet them.
    """
    plane = control_plane
    for item in items:
        plane.apply(item)
    plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    plane.request("PATCH", NODE, {"spec": {"taints": [FOREIGN_TAINT]}})
    plane.request("PATCH", f"{NODE}/status", {"status": {"conditions": [READY]}})
    device_objects.publish(plane, "n1", {f"npu-{chip}": chip for chip in range(8)})
    plane.request("POST", RULES, FOREIGN_RULE)
    site = Site(plane, items, tmp_path / "state")
    await site.store.put(report("n1", faulty()))
    try:
        yield site
    finally:
        site.daemon.stop()
        await site.store.close()
        device_objects.clean(plane)
        take_back(plane, items)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the objects of the components, with the rights that the account has anyway."""
    return build_with(tmp_path_factory.mktemp("kustomize"), "base", *COMPONENTS)


async def test_a_component_that_goes_first_is_named_until_its_rights_are_back(site: Site) -> None:
    await site.writes(EVERY)
    site.revoke()
    await site.run(OFF)
    await until(lambda: len(site.warnings()) == 2, lambda: site.daemon.log.read_text()[-4000:])
    of_nodes, of_devices = sorted(site.warnings())
    assert of_nodes.startswith("conditions and taints of Nodes are left")
    assert of_devices.startswith("rules of device_taints are left")
    assert site.written() == EVERY
    # As it should have been: the option is off, and its component is there.
    site.grant()
    await site.run(OFF)
    await until(
        lambda: all(text in site.daemon.log.read_text() for text in SWITCHED_OFF), seconds=60
    )
    assert site.written() == set()
    # A line is logged before its warning ends.
    await until(lambda: site.warnings() == [], lambda: f"no warning is left: {site.warnings()}")


async def test_the_verb_removes_what_is_left_by_the_rights_of_its_caller(site: Site) -> None:
    """What a caller may not write stays, is named, and is there for the next one."""
    await site.writes(EVERY)
    site.daemon.stop()
    site.revoke()
    for item in OF_CALLER:
        site.plane.apply(item)
    caller = site.plane.kubeconfig_of("stranger-token")
    administrator = site.plane.kubeconfig
    try:
        status, text = await site.uninstall(administrator)
        assert status == 0
        assert f"DeviceTaintRule {RULE} would be deleted" in text
        assert "node n1 would lose its conditions and its taint of npu-vigil" in text
        assert site.written() == EVERY
        status, text = await site.uninstall(caller, "--yes")
        assert (status, "node n1" in text.lower(), "forbidden" in text) == (3, True, True), text
        assert site.written() == EVERY - {"device_taints"}
        assert (await site.uninstall(administrator, "--yes"))[0] == 0
        assert site.written() == set()
    finally:
        take_back(site.plane, OF_CALLER)


async def test_a_verb_that_is_missing_is_named_and_stops_only_its_own_option(site: Site) -> None:
    site.take_verb("device-taints", "devicetaintrules", "create")
    await site.writes(EVERY - {"device_taints"})
    await until(lambda: site.warnings("are not written") != [])
    (warning,) = site.warnings("are not written")
    assert warning.startswith("device_taints are not written: ")
    assert 'cannot create resource "devicetaintrules"' in warning
