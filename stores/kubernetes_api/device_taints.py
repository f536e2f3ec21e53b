"""Devices of dynamic resource allocation and our rules at the API server."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from contract.documents.device_taints import (
    GROUP,
    VERSIONS,
    Device,
    DeviceSlice,
    DeviceUse,
    TaintRule,
    add_claim,
    read_rule,
    rule_body,
    slice_reader,
)
from contract.kubernetes import decode_object
from stores.device_taints import DeviceTaints, ServedVersions
from stores.kubernetes_api import wire
from stores.kubernetes_api.feed import Feed, WatchedKind, follow_if_installed
from stores.kubernetes_api.watch import ListPage, listed, read_objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from contract.kubernetes import KubernetesObject
    from stores.device_taints import DevicesEvent, RulesEvent
    from stores.kubernetes_api.client.connection import ApiConnection

_RULES, _SLICES, _CLAIMS = "devicetaintrules", "resourceslices", "resourceclaims"


class _GroupVersion(msgspec.Struct):
    version: str


class _ApiGroup(msgspec.Struct):
    versions: list[_GroupVersion] = []


class _ApiResource(msgspec.Struct):
    name: str


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource] = []


_group = msgspec.json.Decoder(_ApiGroup).decode
_resources = msgspec.json.Decoder(_ApiResources).decode


class KubernetesDeviceTaints(DeviceTaints):
    """Asks the API server of ``connection``."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    @override
    async def served(self) -> ServedVersions:
        answer = await self._connection.request("GET", f"/apis/{GROUP}")
        if answer.status == HTTPStatus.NOT_FOUND:
            return ServedVersions()
        action = f"read which versions of {GROUP} are served"
        body = wire.accepted(answer, action)
        served = {item.version for item in wire.decoded(_group, body, action).versions}
        names = {version: await self._names(version) for version in VERSIONS if version in served}
        versions = {
            kind: next((version for version, kinds in names.items() if kind in kinds), None)
            for kind in (_RULES, _SLICES)
        }
        return ServedVersions(versions[_RULES], versions[_SLICES], has_group=True)

    async def _names(self, version: str) -> set[str]:
        """Return the resources of a version, none where it ended meanwhile."""
        answer = await self._connection.request("GET", f"/apis/{GROUP}/{version}")
        action = f"read the resources of {GROUP}/{version}"
        body = wire.accepted(answer, action, HTTPStatus.NOT_FOUND)
        if answer.status == HTTPStatus.NOT_FOUND:
            return set()
        return {item.name for item in wire.decoded(_resources, body, action).resources}

    @override
    def devices(self, version: str, attributes: Mapping[str, str]) -> AsyncIterator[DevicesEvent]:
        kind = WatchedKind[DeviceSlice](
            name="ResourceSlices",
            path=_path(version, _SLICES),
            query={},
            key=lambda metadata: metadata.name,
            read=slice_reader(attributes),
        )
        return follow_if_installed(self._connection, Feed(kind))

    @override
    def rules(self, version: str) -> AsyncIterator[RulesEvent]:
        kind = WatchedKind[TaintRule](
            name="DeviceTaintRules",
            path=_path(version, _RULES),
            query={},
            key=lambda metadata: metadata.name,
            read=read_rule,
        )
        return follow_if_installed(self._connection, Feed(kind))

    @override
    async def use(
        self, version: str, drivers: frozenset[str], devices: Iterable[Device]
    ) -> DeviceUse:
        use = DeviceUse(set(), {device: set() for device in devices})

        def count(body: bytes) -> ListPage[KubernetesObject]:
            page = read_objects(body)
            for claim in page.items or ():
                add_claim(use, claim, drivers)
            # Claims may be as many as chips: none outlives its page.
            return ListPage(page.metadata, [])

        await listed(self._connection, _path(version, _CLAIMS), {}, count, "ResourceClaims")
        return use

    @override
    async def list_rules(self, version: str) -> tuple[TaintRule, ...]:
        path, action = _path(version, _RULES), "DeviceTaintRules"
        items, _ = await listed(self._connection, path, {}, read_objects, action)
        return tuple(rule for item in items if (rule := read_rule(item)) is not None)

    @override
    async def read_rule(self, version: str, name: str) -> TaintRule | None:
        answer = await self._connection.request("GET", _path(version, _RULES, name))
        action = f"read DeviceTaintRule {name}"
        body = wire.accepted(answer, action, HTTPStatus.NOT_FOUND)
        return None if answer.status == HTTPStatus.NOT_FOUND else _rule(body, action)

    @override
    async def make_rule(self, version: str, rule: TaintRule) -> TaintRule:
        answer = await self._connection.request(
            "POST",
            f"{_path(version, _RULES)}?{wire.FIELD_MANAGER}",
            msgspec.json.encode(rule_body(rule, version)),
        )
        action = f"make DeviceTaintRule {rule.name}"
        return _rule(wire.accepted(answer, action), action)

    @override
    async def change_rule(self, version: str, rule: TaintRule) -> TaintRule:
        answer = await self._connection.request(
            "PATCH",
            f"{_path(version, _RULES, rule.name)}?{wire.FIELD_MANAGER}",
            msgspec.json.encode(rule_body(rule, version)),
            headers=wire.MERGE_PATCH_HEADERS,
        )
        action = f"change DeviceTaintRule {rule.name}"
        return _rule(wire.accepted(answer, action), action)

    @override
    async def delete_rule(self, version: str, rule: TaintRule) -> None:
        stored = {"uid": rule.uid, "resourceVersion": rule.version}
        answer = await self._connection.request(
            "DELETE",
            _path(version, _RULES, rule.name),
            msgspec.json.encode({"preconditions": stored}),
        )
        wire.accepted(answer, f"delete DeviceTaintRule {rule.name}", HTTPStatus.NOT_FOUND)


def _rule(body: bytes, action: str) -> TaintRule:
    """Return the rule in an answer to ``action``."""

    def read(text: bytes) -> TaintRule:
        rule = read_rule(decode_object(text))
        if rule is None:
            raise msgspec.ValidationError("it has the name of another rule")
        return rule

    return wire.decoded(read, body, f"the answer is not a valid rule ({action})")


def _path(version: str, kind: str, name: str | None = None) -> str:
    return wire.object_path(f"/apis/{GROUP}/{version}", kind, None, name)
