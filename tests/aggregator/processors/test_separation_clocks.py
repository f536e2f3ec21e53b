"""The wall clock is set back or forward: what waits is not held, what is counted stays counted."""

from __future__ import annotations

from aggregator.processors.frequent_fault_separation import (
    ManualSeparation,
    Separated,
    SeparationPolicy,
)
from aggregator.processors.state_types import Occurrence
from contract.codes.levels import ChipLevel
from tests.aggregator.nodes import T0, faulty, healthy, instant, unhealthy
from tests.aggregator.pipelines import ProcessingPipeline
from tests.contract.documents.node_documents import config

HOUR = 3600
CHIP = "Ascend910-3"


def counted(bench: ProcessingPipeline) -> bool:
    return "n1" in bench.processing.separation.chips


def test_a_new_fault_waits_30_s_although_the_clock_was_set_back() -> None:
    bench = ProcessingPipeline()
    bench.use("n1", 3)
    bench.start(n1=healthy())
    bench.separating()
    bench.put(0, "n1", faulty())
    back = instant(1 - HOUR, steady=1)
    bench.pipeline.step(back)
    due_ms = bench.pipeline.next_due_ms()
    assert due_ms is not None
    assert due_ms <= 31_000
    bench.pipeline.step(instant(20 - HOUR, steady=20))
    assert not counted(bench)
    bench.pipeline.step(instant(31 - HOUR, steady=31))
    assert counted(bench)


def test_a_chip_that_was_separated_tomorrow_is_released_in_time() -> None:
    """Cover a clock that was a day ahead when the fault came, and is right again."""
    day = 24 * HOUR
    bench = ProcessingPipeline()
    bench.use("n1", 3)
    bench.start(day, n1=healthy())
    bench.separating(day)
    bench.put(day, "n1", faulty())
    bench.step(day + 31)
    assert counted(bench)
    bench.pipeline.step(instant(40, steady=day + 40))
    bench.pipeline.step(instant(48 * HOUR + 41, steady=day + 48 * HOUR + 41))
    assert not counted(bench)


def test_faults_counted_while_the_clock_was_ahead_count_with_the_rest() -> None:
    separation = ManualSeparation()
    separation.policy = SeparationPolicy(True, 24, 3, 48)

    def occurs(at: int) -> bool:
        return bool(separation.count([Occurrence(at * 1000, "n1", CHIP, "80C98000", "job")]))

    assert not occurs(T0 + 48 * HOUR)
    assert not occurs(T0)
    assert occurs(T0 + 60)


def test_a_separated_chip_that_is_called_otherwise_now_stays_separated() -> None:
    """Cover a device plugin that begins to call ``Ascend910-3`` ``npu-3``."""
    bench = ProcessingPipeline()
    bench.start(n1=healthy())
    bench.separating()
    bench.processing.separation.chips["n1"] = {CHIP: Separated({"80C98000": T0 * 1000})}
    bench.pipeline.judge_again(["n1"])
    bench.step(1)
    assert unhealthy(bench.entry("n1")) == CHIP
    chips = ",".join(f"npu-{number}" for number in range(8))
    devices = {"huawei.com/npu": chips, "huawei.com/npu-Fault": "[]"}
    bench.put(2, "n1", config(devices=devices, update_time=T0 + 2))
    entry = bench.entry("n1")["DeviceList"]
    assert entry["huawei.com/npu-Unhealthy"] == "npu-3"
    assert "npu-3" not in entry["huawei.com/npu"].split(",")
    assert ChipLevel.MANUALLY_SEPARATE_NPU.value in entry["huawei.com/npu-Fault"]
