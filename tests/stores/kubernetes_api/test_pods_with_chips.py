"""Which chips the pods of a node use, read from a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from contract.errors import StoreRefused
from stores.base import PodUsage
from stores.cluster import Snapshot, Update
from tests.parts import pods
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from stores.base import Store
    from tests.parts.controlplane import ControlPlane


@pytest.mark.apiserver
async def test_of_one_node_everything_about_its_pods_is_reported(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    volcano = {"huawei.com/Ascend910": "Ascend910-0, Ascend910-1,", "huawei.com/kltDev": "x-7"}
    pods.make(control_plane, "a", "n1", " Ascend910-1 ", annotations=volcano, asking=("train",))
    pods.make(control_plane, "other", "n2", "Ascend910-0")
    pods.make(control_plane, "two", "n1", "Ascend910-2", asking=("x", "y"))
    events = kubernetes.usage("n1")
    assert events is not None
    async with asyncio.timeout(patience(20)):
        listed = await anext(events)
        assert isinstance(listed, Snapshot)
        shown = {pod.name: replace(pod, uid="") for pod in listed.items.values()}
        assert shown == {
            "a": PodUsage(
                "", "n1", ("Ascend910-1",), ("Ascend910-0", "Ascend910-1"), "default", "a", "train"
            ),
            "two": PodUsage("", "n1", ("Ascend910-2",), (), "default", "two", ""),
        }
        pods.make(control_plane, "b", "n2", "Ascend910-5")
        pods.make(control_plane, "soon", "n1", annotations={"huawei.com/npu": "npu-3"})
        changed = await anext(events)
        assert isinstance(changed, Update)
        soon = changed.value
        assert soon is not None
        assert (soon.name, soon.chips, soon.assigned) == ("soon", (), ("npu-3",))
        pods.end(control_plane, "soon", "Succeeded")
        assert await anext(events) == Update(soon.uid, None)


@pytest.mark.apiserver
@pytest.mark.parametrize("resource", ["Ascend910", "npu", "Ascend310P", "Ascend310"])
async def test_chips_assigned_by_volcano_are_reported_for_every_kind_of_card(
    control_plane: ControlPlane, kubernetes: Store, resource: str
) -> None:
    chosen = {f"huawei.com/{resource}": f"{resource}-3"}
    pods.make(control_plane, "soon", "n1", annotations=chosen)
    events = kubernetes.usage("n1")
    assert events is not None
    async with asyncio.timeout(patience(20)):
        listed = await anext(events)
    assert isinstance(listed, Snapshot)
    assert [pod.assigned for pod in listed.items.values()] == [(f"{resource}-3",)]


@pytest.mark.apiserver
async def test_no_node_can_have_such_a_name(kubernetes: Store) -> None:
    with pytest.raises(StoreRefused, match="node name"):
        kubernetes.usage("n1,status.phase=Failed")
