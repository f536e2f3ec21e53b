"""The component device-taints: what the account of the aggregator may do, on a real API server."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from aggregator.config import load_aggregator
from contract.documents.device_taints import (
    CHIP_ATTRIBUTES,
    Device,
    DeviceEffect,
    TaintRule,
    rule_body,
    rule_name,
)
from stores.address import open_store
from stores.cluster import Snapshot
from tests.parts import device_objects
from tests.parts.deadlines import patience, wait_until
from tests.parts.device_objects import API, RULES
from tests.parts.kustomize import aggregator_container, build_with, take_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.parts.controlplane import ControlPlane

ACCOUNT = "npu-vigil-aggregator"
DEVICE = Device("npu.huawei.com", "n1", "npu-3")
RULE = TaintRule(
    device=DEVICE,
    value="SeparateNPU",
    effect=DeviceEffect.NO_SCHEDULE,
    node="n1",
    chip=3,
    name=rule_name(DEVICE),
)
OK, CREATED, FORBIDDEN, REFUSED = 200, 201, 403, 422
"""What RBAC does not grant is forbidden; what the policy does not let through is refused."""


class Row(NamedTuple):
    """A request and its status."""

    method: str
    path: str
    body: dict[str, Any] | None
    status: int


def rule(name: str = RULE.name, **spec: Any) -> dict[str, Any]:
    body: Any = rule_body(msgspec.structs.replace(RULE, name=name), "v1beta2")
    body["spec"] |= spec
    return dict(body)


def unlabelled(name: str) -> dict[str, Any]:
    body = rule(name)
    body["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "site"}
    return body


def taint(key: str) -> dict[str, str]:
    return {"key": key, "effect": "NoExecute"}


ROWS = {
    "a rule of its own": Row("POST", RULES, rule("npu-vigil-new"), CREATED),
    "a rule with another name": Row("POST", RULES, rule("site-new"), REFUSED),
    "a rule with the label of another program": Row(
        "POST", RULES, unlabelled("npu-vigil-new"), REFUSED
    ),
    "a rule with another key": Row(
        "POST", RULES, rule("npu-vigil-new", taint=taint("site/key")), REFUSED
    ),
    "a rule for all devices": Row("POST", RULES, rule("npu-vigil-new", deviceSelector={}), REFUSED),
    "a rule for a whole driver": Row(
        "POST",
        RULES,
        rule("npu-vigil-new", deviceSelector={"driver": "npu.huawei.com"}),
        REFUSED,
    ),
    "a rule for no device": Row("POST", RULES, rule("npu-vigil-new", deviceSelector=None), REFUSED),
    "the effect of a rule of its own": Row(
        "PATCH",
        f"{RULES}/npu-vigil-own",
        {"spec": {"taint": taint("npu-vigil/fault")}},
        OK,
    ),
    "the key of a rule of its own": Row(
        "PATCH", f"{RULES}/npu-vigil-own", {"spec": {"taint": taint("site/key")}}, REFUSED
    ),
    "the label of a rule of its own": Row(
        "PATCH",
        f"{RULES}/npu-vigil-own",
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
        REFUSED,
    ),
    "the status of a rule of its own": Row(
        "PATCH", f"{RULES}/npu-vigil-own/status", {"status": {"conditions": []}}, FORBIDDEN
    ),
    "deletion of a rule of its own": Row("DELETE", f"{RULES}/npu-vigil-own", None, OK),
    "a change of a rule of another program": Row(
        "PATCH", f"{RULES}/site", {"spec": {"taint": taint("npu-vigil/fault")}}, REFUSED
    ),
    "deletion of a rule of another program": Row("DELETE", f"{RULES}/site", None, REFUSED),
    "deletion of a rule with our prefix and the label of another program": Row(
        "DELETE", f"{RULES}/npu-vigil-site", None, REFUSED
    ),
    "deletion of all rules": Row("DELETE", RULES, None, FORBIDDEN),
    "a ResourceSlice": Row("POST", f"{API}/resourceslices", {"metadata": {"name": "x"}}, FORBIDDEN),
    "deletion of a ResourceSlice": Row("DELETE", f"{API}/resourceslices/any", None, FORBIDDEN),
    "a ResourceClaim": Row(
        "POST",
        f"{API}/namespaces/default/resourceclaims",
        {"metadata": {"name": "x"}},
        FORBIDDEN,
    ),
    "a Node": Row("DELETE", "/api/v1/nodes/any", None, FORBIDDEN),
    "deletion of a pod": Row("DELETE", "/api/v1/namespaces/default/pods/any", None, FORBIDDEN),
}


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Build the base with the component."""
    return build_with(tmp_path_factory.mktemp("k"), "base", "device-taints")


class Account:
    """Asks with the token of the account. Nothing is kept of it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.kubeconfig = plane.service_account("mindx-dl", ACCOUNT)
        self._token = json.loads(self.kubeconfig.read_text())["users"][0]["user"]["token"]
        self._port = plane.port
        self._tls = ssl.create_default_context(cafile=str(plane.directory / "ca.crt"))

    def ask(self, row: Row) -> tuple[int, str]:
        """Ask as a dry run; return status and text of the answer."""
        kind = "merge-patch+json" if row.method == "PATCH" else "json"
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": f"application/{kind}",
        }
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._tls, timeout=patience(10)
        )
        try:
            content = None if row.body is None else json.dumps(row.body)
            connection.request(row.method, f"{row.path}?dryRun=All", content, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def account(running_control_plane: ControlPlane, items: list[dict[str, Any]]) -> Iterator[Account]:
    """Yield the account with the component alone, and rules of it and of others.

    Its policy concerns this account only, so other tests do not meet it.
    """
    plane = running_control_plane
    plane.recover()
    part = [item for item in items if item["kind"] == "Namespace"]
    part += [
        item
        for item in items
        if (item["kind"], item["metadata"]["name"]) == ("ServiceAccount", ACCOUNT)
        or item["metadata"]["name"] == f"{ACCOUNT}-device-taints"
        or item["metadata"]["name"] == f"{ACCOUNT}-own-rules-only"
    ]
    for item in part:
        plane.apply(item)
    foreign = unlabelled("site")
    for body in (rule("npu-vigil-own"), foreign, unlabelled("npu-vigil-site")):
        plane.request("POST", RULES, body)
    asker = Account(plane)
    wait_until(lambda: asker.ask(ROWS["a rule for all devices"])[0] == REFUSED, "the policy", 20)
    yield asker
    device_objects.clean(plane)
    take_back(plane, part)


@pytest.mark.server
def test_it_is_switched_on(items: list[dict[str, Any]]) -> None:
    environment = {
        item["name"]: item["value"] for item in aggregator_container(items).get("env", [])
    }
    settings = load_aggregator(None, environment, {}).device_taints
    assert settings.enabled
    assert not settings.dry_run


@pytest.mark.apiserver
def test_the_account_may_write_its_own_rules_and_nothing_else(account: Account) -> None:
    wrong = {}
    for name, row in ROWS.items():
        status, text = account.ask(row)
        if status != row.status:
            wrong[name] = (row.status, status, text[:300])
    assert wrong == {}


@pytest.mark.apiserver
async def test_the_rights_are_enough(account: Account) -> None:
    store = open_store("kubernetes:", account.kubeconfig)
    taints = store.device_taints
    assert taints is not None
    served = await taints.served()
    assert (served.rules, served.devices) == ("v1beta2", "v1")
    assert isinstance(await anext(aiter(taints.devices("v1", CHIP_ATTRIBUTES))), Snapshot)
    assert isinstance(await anext(aiter(taints.rules("v1beta2"))), Snapshot)
    assert (await taints.use("v1", frozenset(CHIP_ATTRIBUTES), [DEVICE])).pods == set()
    made = await taints.make_rule("v1beta2", RULE)
    eased = msgspec.structs.replace(made, effect=DeviceEffect.NONE)
    changed = await taints.change_rule("v1beta2", eased)
    assert await taints.read_rule("v1beta2", RULE.name) == changed
    await taints.delete_rule("v1beta2", changed)
    await store.close()
