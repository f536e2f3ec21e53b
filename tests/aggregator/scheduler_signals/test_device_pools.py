"""Which devices are a chip: generations, incomplete pools, pools that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aggregator.scheduler_signals.device_pools import DevicePools, NodeChip
from contract.documents.device_taints import ChipDevice, Device, DeviceSlice
from tests.aggregator.scheduler_signals.device_objects import HAMI, NPU, a_slice

if TYPE_CHECKING:
    from collections.abc import Mapping


def pools(**slices: DeviceSlice) -> DevicePools:
    made = DevicePools()
    made.replace(slices)
    return made


def names(made: DevicePools, chip: int, node: str = "n1") -> list[str]:
    return [device.name for device in made.devices(NodeChip(node, chip))]


def test_several_devices_may_be_parts_of_one_chip() -> None:
    made = pools(a=a_slice(("npu-0", 0), ("vnpu-1-0", 1), ("vnpu-1-1", 1)))
    assert names(made, 1) == ["vnpu-1-0", "vnpu-1-1"]
    assert names(made, 2) == []
    assert names(made, 1, "n2") == []
    assert made.chips == 2
    assert made.chip_of(Device(NPU, "n1", "npu-0")) == NodeChip("n1", 0)
    assert made.claimants(NodeChip("n1", 1)) == ((NPU, "n1"),)


def test_only_the_highest_generation_counts_once_all_its_slices_are_there() -> None:
    made = pools(a=a_slice(("old", 0)))
    assert made.update("b", a_slice(("new-0", 0), generation=2, slices=2)) == {"n1"}
    assert names(made, 0) == []
    assert made.chips == 0
    assert made.problems() == ("pool n1 of npu.huawei.com has 1 of 2 slices of generation 2",)
    assert made.update("c", a_slice(("new-1", 1), generation=2, slices=2)) == {"n1"}
    assert names(made, 0) == ["new-0"]
    assert names(made, 1) == ["new-1"]
    assert made.chip_of(Device(NPU, "n1", "old")) is None
    assert made.problems() == ()
    made.update("a", None)
    assert made.chips == 2


def test_a_pool_with_more_slices_than_it_states_is_incomplete() -> None:
    made = pools(a=a_slice(("npu-0", 0)), b=a_slice(("npu-1", 1)))
    assert names(made, 0) == []


def test_two_pools_may_claim_one_chip() -> None:
    made = pools(a=a_slice(("npu-0", 0)), b=a_slice(("npu-0", 0), driver=HAMI))
    assert made.claimants(NodeChip("n1", 0)) == ((HAMI, "n1"), (NPU, "n1"))
    assert made.chips == 1
    made.update("b", None)
    assert made.claimants(NodeChip("n1", 0)) == ((NPU, "n1"),)


def test_a_slice_may_have_devices_of_several_nodes() -> None:
    members = (ChipDevice("a", 0, "n1"), ChipDevice("b", 0, "n2"))
    made = pools(a=DeviceSlice(NPU, "rack", 1, 1, "", members))
    assert names(made, 0) == ["a"]
    assert names(made, 0, "n2") == ["b"]
    assert made.chip_of(Device(NPU, "rack", "b")) == NodeChip("n2", 0)


def test_a_slice_that_moves_to_another_node_leaves_none_behind() -> None:
    made = pools(a=a_slice(("npu-0", 0)))
    assert made.update("a", a_slice(("npu-0", 0), node="n2", pool="n1")) == {"n1", "n2"}
    assert names(made, 0) == []
    assert names(made, 0, "n2") == ["npu-0"]
    assert made.update("a", a_slice(("npu-0", 0), node="n2", pool="n1")) == set()


def test_what_cannot_be_read_stays_as_it_was() -> None:
    made = pools(a=a_slice(("npu-0", 0)), b=a_slice(("npu-0", 0), node="n2"))
    assert made.replace({}, frozenset({"a"})) == {"n2"}
    assert names(made, 0) == ["npu-0"]
    assert names(made, 0, "n2") == []


SLICES = st.builds(
    a_slice,
    st.tuples(st.sampled_from("abc"), st.integers(0, 2)),
    node=st.sampled_from(["n1", "n2"]),
    generation=st.integers(1, 2),
    slices=st.integers(1, 2),
    driver=st.sampled_from([NPU, HAMI]),
    pool=st.sampled_from(["p", "q"]),
)


@given(st.lists(st.dictionaries(st.sampled_from("xyz"), SLICES), max_size=5))
def test_the_order_of_changes_leaves_nothing_behind(lists: list[Mapping[str, DeviceSlice]]) -> None:
    made = DevicePools()
    for slices in lists:
        made.replace(slices)
    fresh = DevicePools()
    fresh.replace(lists[-1] if lists else {})
    chips = [NodeChip(node, number) for node in ("n1", "n2") for number in range(3)]
    assert [sorted(made.devices(chip)) for chip in chips] == [
        sorted(fresh.devices(chip)) for chip in chips
    ]
    assert made.chips == fresh.chips
