"""Devices of dynamic resource allocation and rules on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pytest

from contract.documents.device_taints import (
    CHIP_ATTRIBUTES,
    ChipDevice,
    Device,
    DeviceEffect,
    TaintRule,
    rule_name,
)
from contract.errors import StoreConflict
from stores.cluster import Snapshot, Update
from stores.device_taints import ServedVersions
from tests.parts import device_objects
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from stores.base import Store
    from stores.device_taints import DeviceTaints
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

DEVICE = Device("npu.huawei.com", "n1", "npu-3")
RULE = TaintRule(
    device=DEVICE,
    value="SeparateNPU",
    effect=DeviceEffect.NONE,
    node="n1",
    chip=3,
    name=rule_name(DEVICE),
)
V = "v1beta2"
OTHERS = {
    "metadata": {"name": "npu-vigil-by-a-person"},
    "spec": {"taint": {"key": "site", "effect": "None"}},
}
T = TypeVar("T")


@contextlib.asynccontextmanager
async def closing(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Yield ``events``, and end their request at the end."""
    yield events
    close = getattr(events, "aclose", None)
    assert close is not None
    await close()


@pytest.fixture
def taints(kubernetes: Store) -> DeviceTaints:
    assert kubernetes.device_taints is not None
    return kubernetes.device_taints


@pytest.fixture(autouse=True)
def _clean(control_plane: ControlPlane) -> Iterator[None]:
    yield
    device_objects.clean(control_plane)


async def test_the_served_versions_are_found(taints: DeviceTaints) -> None:
    assert await taints.served() == ServedVersions("v1beta2", "v1", has_group=True)


async def test_a_rule_is_made_changed_and_deleted(
    taints: DeviceTaints, control_plane: ControlPlane
) -> None:
    made = await taints.make_rule(V, RULE)
    with pytest.raises(StoreConflict):
        await taints.make_rule(V, RULE)
    stored = await taints.read_rule(V, RULE.name)
    assert stored == made
    control_plane.request("POST", device_objects.RULES, OTHERS)
    assert await taints.list_rules(V) == (made,)
    assert stored.content == RULE.content
    assert (bool(stored.uid), bool(stored.version), stored.generation) == (True, True, 1)

    path = f"{device_objects.RULES}/{RULE.name}"
    others = {"metadata": {"annotations": {"site": "b"}, "labels": {"team": "a"}}}
    control_plane.request("PATCH", path, others)
    evicting = msgspec.structs.replace(stored, effect=DeviceEffect.NO_EXECUTE, evicted_pods=2)
    with pytest.raises(StoreConflict):
        await taints.change_rule(V, evicting)
    with pytest.raises(StoreConflict):
        await taints.delete_rule(V, stored)
    newest = await taints.read_rule(V, RULE.name)
    assert newest is not None
    after = await taints.change_rule(V, msgspec.structs.replace(evicting, version=newest.version))
    assert after == await taints.read_rule(V, RULE.name)
    assert after.generation == 2
    assert after.content == evicting.content
    metadata = control_plane.request("GET", path)["metadata"]
    assert metadata["annotations"]["site"] == "b"
    assert metadata["labels"]["team"] == "a"

    milder = msgspec.structs.replace(after, effect=DeviceEffect.NO_SCHEDULE, evicted_pods=0)
    await taints.change_rule(V, milder)
    metadata = control_plane.request("GET", path)["metadata"]
    assert "npu-vigil/evicted-pods" not in metadata["annotations"]
    last = await taints.read_rule(V, RULE.name)
    assert last is not None
    await taints.delete_rule(V, last)
    await taints.delete_rule(V, last)
    assert await taints.read_rule(V, RULE.name) is None


async def test_a_rule_that_was_made_anew_is_another_one(
    taints: DeviceTaints, control_plane: ControlPlane
) -> None:
    await taints.make_rule(V, RULE)
    first = await taints.read_rule(V, RULE.name)
    assert first is not None
    control_plane.request("DELETE", f"{device_objects.RULES}/{RULE.name}")
    await taints.make_rule(V, RULE)
    with pytest.raises(StoreConflict):
        await taints.change_rule(V, msgspec.structs.replace(first, effect=DeviceEffect.NO_EXECUTE))
    with pytest.raises(StoreConflict):
        await taints.delete_rule(V, first)
    second = await taints.read_rule(V, RULE.name)
    assert second is not None
    assert second.effect is DeviceEffect.NONE


async def test_rules_of_ours_are_followed_with_their_answers(
    taints: DeviceTaints, control_plane: ControlPlane
) -> None:
    control_plane.request("POST", device_objects.RULES, OTHERS)
    async with asyncio.timeout(patience(20)), closing(taints.rules(V)) as events:
        assert await anext(events) == Snapshot({})
        await taints.make_rule(V, RULE)
        event = await anext(events)
        assert isinstance(event, Update)
        assert event.value is not None
        assert event.value.eviction is None
        device_objects.answer(control_plane, RULE.name, 7)
        event = await anext(events)
        assert isinstance(event, Update)
        assert event.value is not None
        assert event.value.eviction is not None
        assert (event.value.eviction.pods, event.value.eviction.generation) == (7, 1)
        control_plane.request("DELETE", f"{device_objects.RULES}/{RULE.name}")
        assert await anext(events) == Update(RULE.name, None)


async def test_devices_of_drivers_are_followed(
    taints: DeviceTaints, control_plane: ControlPlane
) -> None:
    name = device_objects.publish(control_plane, "n1", {"npu-3": 3})
    device_objects.publish(control_plane, "n1", {"gpu-0": 0}, driver="gpu.example.com")
    events = taints.devices("v1", CHIP_ATTRIBUTES)
    async with asyncio.timeout(patience(20)), closing(events):
        first = await anext(events)
        assert isinstance(first, Snapshot)
        assert {key: item.devices for key, item in first.items.items()} == {
            name: (ChipDevice("npu-3", 3),)
        }
        hami = device_objects.publish(
            control_plane,
            "n1",
            {"npu-0": 0},
            driver="ascend.project-hami.io",
            attribute="physicalID",
        )
        event = await anext(events)
        assert isinstance(event, Update)
        assert event.key == hami
        control_plane.request("DELETE", f"{device_objects.API}/resourceslices/{hami}")
        assert await anext(events) == Update(hami, None)


async def test_pods_are_counted_by_claims(
    taints: DeviceTaints, control_plane: ControlPlane
) -> None:
    device_objects.claim(control_plane, "c1", ["a", "b"], ["npu-3", "npu-4"])
    device_objects.claim(control_plane, "c2", ["c"], ["npu-5"])
    use = await taints.use("v1", frozenset(CHIP_ATTRIBUTES), [DEVICE])
    assert use.pods == {"a", "b", "c"}
    assert use.evictable == {DEVICE: {"a", "b"}}
