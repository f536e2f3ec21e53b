"""The state of processors that a new leader joins with what it saw itself."""

from __future__ import annotations

from aggregator.processors.state import complete, joined_device
from aggregator.processors.state_types import NO_DEVICE_STATE, DeviceState

NOW_MS = 1_800_000_000_000
CHIP, FIRST, SECOND, OLD = "Ascend910-0", "80C98000", "80C98002", "80C98008"
RESTORED = DeviceState(received={CHIP: {FIRST: NOW_MS - 5_000}}, uce={CHIP: NOW_MS - 5_000})


def test_a_recent_fault_that_the_restored_state_lacks_is_added() -> None:
    own = DeviceState(
        received={
            CHIP: {FIRST: NOW_MS - 4_000, SECOND: NOW_MS - 3_000, OLD: NOW_MS - 600_000},
        },
        uce={CHIP: NOW_MS - 4_000},
    )
    joined = joined_device(RESTORED, own, NOW_MS)
    assert joined.received == {CHIP: {FIRST: NOW_MS - 5_000, SECOND: NOW_MS - 3_000}}
    assert joined.uce == RESTORED.uce


def test_only_nodes_that_lacked_something_are_completed() -> None:
    restored = {"n1": RESTORED, "n2": RESTORED}
    more = DeviceState(received={CHIP: {SECOND: NOW_MS}})
    own = {"n1": RESTORED, "n2": more, "n3": more}
    changed = [*complete(restored, own, NO_DEVICE_STATE, joined_device, NOW_MS)]
    assert changed == ["n2", "n3"]
    assert restored["n1"] is RESTORED
    assert restored["n2"].received == {CHIP: {FIRST: NOW_MS - 5_000, SECOND: NOW_MS}}
    assert restored["n3"] == more
