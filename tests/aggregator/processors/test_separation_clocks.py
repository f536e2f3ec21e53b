"""The wall clock is set back or forward: what waits is not held, what is counted stays counted."""

from __future__ import annotations

from aggregator.processors.manual_separation import ManualSeparation, Separated
from aggregator.processors.separation_policy import SeparationPolicy
from aggregator.processors.state_types import Occurrence
from contract.codes.levels import ChipLevel
from tests.aggregator.nodes import T0, faulty, healthy, moment, unhealthy
from tests.aggregator.processors.test_pipeline import World
from tests.contract.documents.test_cluster_device import config

HOUR = 3600
CHIP = "Ascend910-3"


def counted(world: World) -> bool:
    return "n1" in world.processing.separation.chips


def test_a_new_fault_waits_30_s_although_the_clock_was_set_back() -> None:
    world = World()
    world.use("n1", 3)
    world.start(n1=healthy())
    world.separating()
    world.put(0, "n1", faulty())
    back = moment(1 - HOUR, steady=1)
    world.pipeline.step(back)
    due_ms = world.pipeline.next_due_ms()
    assert due_ms is not None
    assert due_ms <= 31_000
    world.pipeline.step(moment(20 - HOUR, steady=20))
    assert not counted(world)
    world.pipeline.step(moment(31 - HOUR, steady=31))
    assert counted(world)


def test_a_chip_that_was_separated_tomorrow_is_released_in_time() -> None:
    """The clock was a day ahead when the fault came, and is right again."""
    day = 24 * HOUR
    world = World()
    world.use("n1", 3)
    world.start(day, n1=healthy())
    world.separating(day)
    world.put(day, "n1", faulty())
    world.step(day + 31)
    assert counted(world)
    world.pipeline.step(moment(40, steady=day + 40))
    world.pipeline.step(moment(48 * HOUR + 41, steady=day + 48 * HOUR + 41))
    assert not counted(world)


def test_what_was_counted_while_the_clock_was_ahead_counts_with_the_rest() -> None:
    separation = ManualSeparation()
    separation.policy = SeparationPolicy(True, 24, 3, 48)

    def occurs(at: int) -> bool:
        return bool(separation.count([Occurrence(at * 1000, "n1", CHIP, "80C98000", "job")]))

    assert not occurs(T0 + 48 * HOUR)
    assert not occurs(T0)
    assert occurs(T0 + 60)


def test_a_separated_chip_that_is_called_otherwise_now_stays_separated() -> None:
    """A device plugin begins to call ``Ascend910-3`` ``npu-3``: no ghost, no free chip."""
    world = World()
    world.start(n1=healthy())
    world.separating()
    world.processing.separation.chips["n1"] = {CHIP: Separated({"80C98000": T0 * 1000})}
    world.pipeline.judge_again(["n1"])
    world.step(1)
    assert unhealthy(world.entry("n1")) == CHIP
    chips = ",".join(f"npu-{number}" for number in range(8))
    devices = {"huawei.com/npu": chips, "huawei.com/npu-Fault": "[]"}
    world.put(2, "n1", config(devices=devices, update_time=T0 + 2))
    entry = world.entry("n1")["DeviceList"]
    assert entry["huawei.com/npu-Unhealthy"] == "npu-3"
    assert "npu-3" not in entry["huawei.com/npu"].split(",")
    assert ChipLevel.MANUALLY_SEPARATE_NPU.value in entry["huawei.com/npu-Fault"]
