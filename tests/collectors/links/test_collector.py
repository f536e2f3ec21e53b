"""The collector of links with the look-alike tool, and with other people's bad ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec.structs import replace

from collectors.base import AgentOptions
from collectors.links.collector import LinksCollector, LinksSection
from collectors.links.unified_bus import UnifiedBus
from contract.codes.chip_codes import (
    LINK_DOWN,
    UB_PORT_DOWN,
    UB_SEPARATE,
    UB_SUB_HEALTH,
    UBOE_PORT_DOWN,
    UBOE_PRE_SEPARATE,
    UBOE_SUB_HEALTH,
)
from contract.observation import Assertion, Gap, Observation, chip_subject
from dcmi_shim.emulator.install import HCCN_TOOL
from dcmi_shim.values import Chip, Inventory
from tests.collectors.scripted import RecordedReports, ScriptedDriver, word
from tests.parts import deadlines
from tests.parts.collector_context import collector_context
from tests.parts.deadlines import patience, stays, time_passes
from tests.parts.process_table import processes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from collectors.base import CollectorContext, Sink
    from contract.observation import Report, Subject
    from dcmi_shim.emulator.control import Emulator


def links(
    *,
    npu_exporter_names: bool = False,
    hccn_error: Literal["blind", "down"] = "blind",
    **seconds: float,
) -> Callable[[CollectorContext], LinksCollector]:
    """Return what makes a collector with these settings."""
    options = AgentOptions(npu_exporter_names=npu_exporter_names, hccn_error=hccn_error)

    def make(context: CollectorContext) -> LinksCollector:
        return LinksCollector(LinksSection(**seconds), replace(context, options=options))

    return make


pytestmark = pytest.mark.slow

CHIPS = 4


class Node:
    """A running collector with its reports, its readings, and the reports that it receives."""

    def __init__(self) -> None:
        self.recorded = RecordedReports()
        self.readings: dict[tuple[Subject, str], float] = {}
        self.listeners: list[Sink] = []
        self.driver = ScriptedDriver(CHIPS)
        self.progress = 0

    def show(self, subject: Subject, name: str, value: float | None) -> None:
        if value is None:
            self.readings.pop((subject, name), None)
        else:
            self.readings[subject, name] = value

    def up(self) -> dict[int, float]:
        shown = sorted(self.readings.items())
        return {chip.id: value for (chip, name), value in shown if name == "link_up"}

    def event(self, chip: int, assertion: Assertion, code: str = LINK_DOWN) -> None:
        self.observe(Observation("chip-faults", chip_subject(chip), code, assertion, 0))

    def observe(self, report: Report) -> None:
        for listener in self.listeners:
            listener([report])

    def made_progress(self) -> None:
        self.progress += 1

    def words(self, chip: int) -> list[str]:
        return self.words_about(f"chip {chip} ")

    def words_about(self, subject: str) -> list[str]:
        recorded = self.recorded.words()
        return [one.removeprefix(subject) for one in recorded if one.startswith(subject)]


@contextlib.asynccontextmanager
async def running(
    root: Path,
    make: Callable[[CollectorContext], LinksCollector],
    tracked: dict[tuple[Subject, str], int] | None = None,
    driver: ScriptedDriver | None = None,
) -> AsyncIterator[Node]:
    node = Node()
    node.driver = driver or node.driver
    around = collector_context(
        node.recorded,
        lambda: time.time_ns() // 1_000_000,
        node.driver,
        tracked=tracked,
        driver_root=root,
        environment=os.environ,
        show=node.show,
        listen=node.listeners.append,
        progress=node.made_progress,
    )
    task = asyncio.create_task(make(around).run())
    try:
        yield node
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 5) -> float:
    began = time.monotonic()
    await deadlines.until(condition, seconds=seconds)
    return time.monotonic() - began


@pytest.fixture
def root(emulated_server: tuple[Path, Emulator], hardware: Emulator) -> Path:
    return emulated_server[0]


def everyone(node: Node) -> bool:
    return all(node.words(chip) for chip in range(CHIPS))


def blind(node: Node) -> list[int]:
    return [
        chip for chip in range(CHIPS) if any("blind" in recorded for recorded in node.words(chip))
    ]


async def test_links_go_down_and_come_up(root: Path, hardware: Emulator) -> None:
    hardware.link(2, up=False)
    async with running(root, links(period_seconds=0.4)) as node:
        await until(lambda: everyone(node))
        assert node.words(2) == ["answered", f"present {LINK_DOWN}"]
        assert node.words(1) == ["answered"]
        hardware.link(1, up=False, quietly=True)
        await until(lambda: f"present {LINK_DOWN}" in node.words(1))
        assert node.up() == {0: 1, 1: 0, 2: 0, 3: 1}
        hardware.link(2, up=True)
        await until(lambda: f"absent {LINK_DOWN}" in node.words(2))
        assert node.up() == {0: 1, 1: 0, 2: 1, 3: 1}
        assert node.words(0) == node.words(3) == ["answered"]


async def test_faults_tracked_before_a_restart_are_compared_with_the_list(
    root: Path, hardware: Emulator
) -> None:
    hardware.link(3, up=False)
    tracked = {(chip_subject(chip), LINK_DOWN): 1 for chip in (1, 3, 9)}
    async with running(root, links(), tracked) as node:
        await until(lambda: everyone(node))
        assert node.words(1) == ["answered", f"absent {LINK_DOWN}"]
        assert node.words(3) == ["answered"]
        assert node.words(9) == ["blind: the driver does not show this chip"]


async def test_an_event_makes_it_ask_two_seconds_later(root: Path, hardware: Emulator) -> None:
    async with running(root, links()) as node:
        await until(lambda: everyone(node))
        hardware.link(1, up=False)
        hardware.link(2, up=False)
        began = time.monotonic()
        for report in ("80E01801", UB_PORT_DOWN):
            node.event(0, Assertion.OCCUR, report)
        node.event(1, Assertion.OCCUR)
        assert await until(lambda: f"present {LINK_DOWN}" in node.words(1)) < patience(4)
        assert time.monotonic() - began > 1.9
        assert node.words(0) == ["answered", f"absent {LINK_DOWN}"]
        assert node.words(2) == ["answered"]
        # The driver says that it is over, the tool does not: it returns.
        node.event(1, Assertion.RECOVER)
        await until(lambda: node.words(1).count(f"present {LINK_DOWN}") == 2)
        assert node.words(2) == ["answered"]


async def test_rounds_are_spread_over_the_period(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script(tmp_path, f'echo "$2 $(date +%s.%N)" >> {log}; echo "link status: UP"')

    def times_by_chip() -> list[tuple[int, float]]:
        """Return the chips and times of the last two rounds of questions."""
        lines = log.read_text().splitlines() if log.exists() else []
        asked = [line.split() for line in lines[-2 * CHIPS :]]
        return [(int(chip), float(at)) for chip, at in asked]

    def are_spread() -> bool:
        """Return whether two rounds went through the chips in order, with even gaps."""
        asked = times_by_chip()
        gaps = [after - before for (_, before), (_, after) in pairwise(asked)]
        first = asked[0][0] if asked else 0
        order = [(first + place) % CHIPS for place in range(2 * CHIPS)]
        return [chip for chip, _ in asked] == order and (
            patience(0.2) < median(gaps) < patience(0.45)
        )

    async with running(tmp_path, links(period_seconds=patience(1.2))) as node:
        # The chips are asked at once when it starts. A late question is in no part of the period.
        await deadlines.until(are_spread, times_by_chip)
        assert node.progress > 2 * CHIPS


def replace_text(path: Path, text: str) -> None:
    """Give a file other content at once: a script that reads it meanwhile finds no part of it."""
    fresh = path.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(path)


def script(root: Path, text: str, mode: int = 0o755) -> Path:
    """Write a look-alike of the tool with this script; return its path."""
    path = root / HCCN_TOOL
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name("fresh")
    fresh.write_text(f"#!/bin/sh\n{text}\n")
    fresh.chmod(mode)
    fresh.replace(path)
    return path


BAD = [
    ('echo "Get device health status failed!" >&2; exit 3', "exit status 3: Get device health"),
    ('echo "hccn_tool is busy, please try again."; exit 11', "exit status 11: hccn_tool is busy"),
    ("exit 0", "gave no link status of chip 0; printed: nothing"),
    ('echo "]]link statDOWN"', "gave no link status of chip 0; printed: ]]link statDOWN"),
    ('echo "[devid 9]link status: DOWN"', "answered for chip 9 when chip 0 was asked for"),
    ('echo "link status: UNKNOWN"', "gave no link status of chip 0; printed: link status: UNKNOWN"),
    ("yes DOWN", "more than 1048576 bytes; printed: DOWN DOWN"),
    ("kill -11 $$", "ended by signal 11"),
]


@pytest.mark.parametrize(("text", "reason"), BAD, ids=[reason for _, reason in BAD])
async def test_a_bad_tool_is_blindness(tmp_path: Path, text: str, reason: str) -> None:
    script(tmp_path, text)
    tracked = {(chip_subject(1), LINK_DOWN): 1}
    async with running(tmp_path, links(period_seconds=0.3), tracked) as node:
        await until(lambda: everyone(node))
        assert len(node.words(0)) == 1
        assert node.words(0)[0].startswith("blind: ")
        assert reason in node.words(0)[0]
        assert node.up() == {}
        script(tmp_path, 'echo "link status: UP"')
        await until(lambda: node.words(1)[-1] == f"absent {LINK_DOWN}")
        await until(lambda: all(node.words(chip)[1:2] == ["answered"] for chip in range(CHIPS)))
        assert all(len(node.words(chip)) == 2 for chip in (0, 2, 3))


@pytest.mark.parametrize("there", [True, False], ids=["fails", "is missing"])
async def test_a_bad_tool_is_a_link_that_is_down_where_that_is_wanted(
    tmp_path: Path, there: bool
) -> None:
    if there:
        script(tmp_path, "exit 3")
    async with running(tmp_path, links(period_seconds=0.3, hccn_error="down")) as node:
        await until(lambda: all(len(node.words(chip)) == 2 for chip in range(CHIPS)))
        await stays(0.7, because="two periods of 0.3 s pass")
        for chip in range(CHIPS):
            blindness, down = node.words(chip)
            assert blindness.startswith("blind: ")
            assert down == f"present {LINK_DOWN}"
        assert node.up() == {}
        node.event(1, Assertion.RECOVER)
        await until(lambda: node.words(1).count(f"present {LINK_DOWN}") == 2)
        script(tmp_path, 'echo "link status: UP"')
        await until(lambda: all(f"absent {LINK_DOWN}" in node.words(chip) for chip in range(CHIPS)))


async def test_no_tool_and_a_tool_that_comes_later(tmp_path: Path, root: Path) -> None:
    place = tmp_path / HCCN_TOOL
    async with running(tmp_path, links(period_seconds=0.3)) as node:
        await until(lambda: node.words_about("node 0 "))
        script(tmp_path, 'echo "link status: UP"', mode=0o644)
        await stays(0.4, because="a period of 0.3 s passes")
        assert node.words_about("node 0 ") == [f"blind: {place}: No such file or directory"]
        assert not any(node.words(chip) for chip in range(CHIPS))
        assert node.up() == {}
        place.unlink()
        place.symlink_to(root / HCCN_TOOL)
        await until(lambda: all(node.words(chip) == ["answered"] for chip in range(CHIPS)))
        assert node.words_about("node 0 ")[1:] == ["answered"]
        assert len(node.up()) == CHIPS
        place.unlink()
        await until(lambda: len(node.words_about("node 0 ")) == 3)
        await until(lambda: node.up() == {})


async def test_a_tool_that_failed_quickly_is_asked_again_soon(
    root: Path, hardware: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.links.collector._RETRY_SECONDS", 0.5)
    hardware.tool("hccn_tool", "fail", 2, exit_status=3, text="Get device health status failed!")
    began = time.monotonic()
    async with running(root, links(period_seconds=60)) as node:
        await until(lambda: blind(node) == [2])
        hardware.tool("hccn_tool", "ok", 2)
        assert await until(lambda: node.words(2)[-1] == "answered") < patience(2)
    assert time.monotonic() - began > 0.5


@pytest.mark.parametrize(
    ("mode", "reason"), [(0o644, "is not executable (mode 0644)"), (0o755, "is not run: ")]
)
async def test_a_tool_that_must_not_be_run(tmp_path: Path, mode: int, reason: str) -> None:
    script(tmp_path, "echo ran > /dev/null; echo link status: UP", mode)
    os.chown(tmp_path / HCCN_TOOL, 12345, 12345)
    node = Node()
    around = collector_context(
        node.recorded, lambda: 0, node.driver, driver_root=tmp_path, show=node.show
    )
    trusting = around.paths
    strict = type(trusting)(trusting.driver_root, mode == 0o644, {})
    around = replace(around, paths=strict)
    task = asyncio.create_task(links()(around).run())
    await until(lambda: node.words_about("node 0 "))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert reason in node.words_about("node 0 ")[0]
    assert node.up() == {}


async def test_one_chip_hangs_and_the_others_go_on(root: Path, hardware: Emulator) -> None:
    hardware.tool("hccn_tool", "hang", 1)
    period, deadline = patience(1.0), patience(0.3)
    async with running(root, links(period_seconds=period, deadline_seconds=deadline)) as node:
        await until(lambda: everyone(node))
        silent = f"no answer within {deadline:g} s; killed"
        assert node.words(1) == [f"blind: hccn_tool -i 1 -link -g: {silent}"]
        hardware.link(2, up=False, quietly=True)
        assert await until(lambda: f"present {LINK_DOWN}" in node.words(2)) < patience(2.5)
        hardware.tool("hccn_tool", "ok", 1)
        await until(lambda: node.words(1)[-1] == "answered", 3)
        assert blind(node) == [1]


async def test_a_tool_that_hangs_for_all_does_not_pile_up(root: Path, hardware: Emulator) -> None:
    hardware.tool("hccn_tool", "hang")
    most, period, deadline = 0, patience(0.3), patience(0.1)
    async with running(root, links(period_seconds=period, deadline_seconds=deadline)) as node:
        for _ in range(100):
            # The first one may end, and the next one begin, while all processes are read.
            twice = {*processes_of(root / HCCN_TOOL)} & {*processes_of(root / HCCN_TOOL)}
            most = max(most, len(twice))
            await time_passes(0.01)
        await until(lambda: blind(node) == [*range(CHIPS)])
        assert most == 1
        hardware.tool("hccn_tool", "ok")
        await until(lambda: len(node.up()) == CHIPS)
    await until(lambda: not processes_of(root / HCCN_TOOL))


async def test_a_slow_tool_is_waited_for(root: Path, hardware: Emulator) -> None:
    hardware.tool("hccn_tool", "slow", delay_ms=150)
    hardware.link(0, up=False)
    async with running(root, links(period_seconds=5, deadline_seconds=2)) as node:
        assert await until(lambda: len(node.up()) == CHIPS) < patience(4)
        assert node.words(0) == ["answered", f"present {LINK_DOWN}"]
        assert blind(node) == []


async def test_one_run_at_a_time(root: Path, hardware: Emulator) -> None:
    hardware.tool("hccn_tool", "busy")
    hardware.tool("hccn_tool", "slow", delay_ms=20)
    async with running(
        root,
        links(period_seconds=0.2, npu_exporter_names=True),
    ) as node:
        await stays(1, because="five periods of 0.2 s pass")
        await until(lambda: len(node.up()) == CHIPS)
        assert blind(node) == []


async def test_readings_for_the_exporters_names(root: Path, hardware: Emulator) -> None:
    hardware.link(1, up=False)
    hardware.link(1, up=True)
    hardware.link(2, up=False)
    wanted = {
        "link_up": 1.0,
        "npu_chip_link_speed": 200000.0,
        "npu_chip_link_up_num": 2.0,
        "npu_chip_optical_state": 1.0,
        "npu_chip_optical_vcc": 3262.9,
        "npu_chip_optical_tx_power_2": 1.414,
        "npu_chip_optical_rx_power_0": 1.0189,
        "npu_chip_info_rx_fcs_num": 3.0,
        "npu_chip_mac_tx_bad_pkt_num": 0.0,
        "npu_chip_roce_new_pkt_rty_num": 7.0,
    }

    def shown(chip: int) -> dict[str, float]:
        return {name: value for (of, name), value in node.readings.items() if of.id == chip}

    async with running(
        root,
        links(period_seconds=0.4, npu_exporter_names=True),
    ) as node:
        await until(lambda: all(len(shown(chip)) > 30 for chip in range(CHIPS)))
        assert shown(1).items() >= wanted.items()
        assert len(shown(1)) == 35
        assert "npu_chip_link_speed" not in shown(2)
        assert shown(2)["npu_chip_optical_rx_power_0"] == 0.0
        hardware.tool("hccn_tool", "fail", 1, exit_status=1, text="Command execute failed!")
        await until(lambda: shown(1) == {})
        assert len(shown(3)) == 35
    async with running(root, links(period_seconds=0.2)) as node:
        # The tool still fails for chip 1.
        await until(lambda: len(node.up()) == CHIPS - 1)
        await stays(0.6, because="three periods of 0.2 s pass")
        assert {name for _, name in node.readings} == {"link_up"}


class Other(ScriptedDriver):
    """A server of another family."""

    def __init__(self, family: str, *chips: Chip) -> None:
        super().__init__(0)
        self.family = family
        self.chips = list(chips)
        self.main_board: int | None = 0x23

    async def inventory(self) -> Inventory:
        await self.ready.wait()
        board = self.main_board
        chips = tuple(self.chips)
        return Inventory(chips, self.family, "", None, None, None, "other", main_board=board)


async def test_a_node_without_a_network_plane_proves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script(tmp_path, f"touch {log}; exit 3")
    driver = Other("Ascend310P", Chip(0, 0, 0, 0))
    async with running(tmp_path, links(period_seconds=0.2), driver=driver) as node:
        await until(lambda: node.progress >= 3)
        await stays(0.5, because="two periods of 0.2 s pass")
        assert (node.recorded.batches, node.readings, log.exists()) == ([], {}, False)


async def test_a_driver_that_is_late_and_chips_that_come_later(root: Path) -> None:
    driver = ScriptedDriver(1)
    driver.ready.clear()
    tracked = {(chip_subject(0), LINK_DOWN): 1}
    async with running(root, links(), tracked, driver) as node:
        await until(lambda: node.recorded.batches)
        assert node.words(0) == ["blind: the driver has not answered since the start"]
        driver.ready.set()
        await until(lambda: len(node.words(0)) == 3)
        assert node.words(0)[1:] == ["answered", f"absent {LINK_DOWN}"]
        driver.chips.append(Chip(5, 1, 5, 0))
        node.observe(Gap("chip-faults", 0, "a child was replaced"))
        await until(lambda: node.words(5) == ["answered"])


A5 = """
case "$2" in
    -dev_info) sed "s/NPU/$4/" {ports} ;;
    -port_info) echo "port_enable: $(cat {wired})" ;;
    *) exit 3 ;;
esac
"""
PORTS = """\
+--------+--------+-------+----------+-------------+
| UdieID | PortID | Speed | PortType | Link Status |
+--------+--------+-------+----------+-------------+
| 0      | 4      | 200   | ETH      | {eth:<11} |
| 1      | 7      | 200   | UB       | {ub:<11} |
+--------+--------+-------+----------+-------------+
"""


def test_a_source_that_reported_a_port_down_before_a_restart_takes_it_back() -> None:
    chips = [chip_subject(number) for number in range(3)]
    tracked = {(chips[0], UB_SEPARATE): 1, (chips[0], UB_PORT_DOWN): 1, (chips[1], UB_SEPARATE): 1}
    bus = UnifiedBus("links", tracked)
    assert bus.changes(chips, 1) == []
    for chip in chips:
        bus.observe_tool(chip, down=False)
    assert [word(one) for one in bus.changes(chips, 2)] == [f"chip 0 absent {UB_SEPARATE}"]
    gone = Observation("chip-faults", chips[1], UB_PORT_DOWN, Assertion.ABSENT, 3)
    bus.observe_driver(gone)
    assert [word(one) for one in bus.changes(chips, 3)] == [f"chip 1 absent {UB_SEPARATE}"]


async def test_ports_of_an_a5(tmp_path: Path) -> None:
    ports, wired = tmp_path / "ports", tmp_path / "wired"
    ports.write_text(PORTS.format(eth="DOWN", ub="DOWN"))
    wired.write_text("off")
    script(tmp_path, A5.format(ports=ports, wired=wired))
    driver = Other("Ascend910A5", Chip(8, 0, 0, 0))
    async with running(tmp_path, links(period_seconds=0.2), driver=driver) as node:
        await until(lambda: node.words(8))
        first = [f"present {code}" for code in (UBOE_PORT_DOWN, UBOE_SUB_HEALTH)]
        assert node.words(8) == ["answered", *first]
        replace_text(wired, "on")
        # One chip alone is no plane.
        ub = [f"present {code}" for code in (UB_PORT_DOWN, UB_SEPARATE)]
        await until(lambda: node.words(8)[3:] == ub)
        both = PORTS.format(eth="DOWN", ub="UP") + "| 0      | 5      | 200   | ETH      | DOWN |\n"
        replace_text(ports, both)
        await until(lambda: len(node.words(8)) == 9)
        assert set(node.words(8)[5:]) == {
            *(f"absent {code}" for code in (UBOE_SUB_HEALTH, UB_PORT_DOWN, UB_SEPARATE)),
            f"present {UBOE_PRE_SEPARATE}",
        }
        node.event(8, Assertion.RECOVER, UBOE_PORT_DOWN)
        await until(lambda: node.words(8)[9:10] == [f"absent {UBOE_PRE_SEPARATE}"], 0.5)
        await until(lambda: f"present {UBOE_PRE_SEPARATE}" in node.words(8)[10:], 4)
        replace_text(ports, PORTS.format(eth="UP", ub="UP"))
        await until(lambda: f"absent {UBOE_PRE_SEPARATE}" in node.words(8)[12:])


@pytest.mark.parametrize("board", [0x07, 0x68, None])
async def test_elsewhere_an_ethernet_port_counts_when_the_driver_reports_it(
    tmp_path: Path, board: int | None
) -> None:
    ports, wired = tmp_path / "ports", tmp_path / "wired"
    ports.write_text(PORTS.format(eth="DOWN", ub="DOWN"))
    wired.write_text("on")
    script(tmp_path, A5.format(ports=ports, wired=wired))
    driver = Other("Ascend910A5", Chip(8, 0, 0, 0))
    driver.main_board = board
    ub = [f"present {code}" for code in (UB_PORT_DOWN, UB_SEPARATE)]
    async with running(tmp_path, links(period_seconds=0.2), driver=driver) as node:
        await until(lambda: node.words(8)[1:] == ub)
        await stays(0.5, because="two periods of 0.2 s pass")
        assert node.words(8)[1:] == ub, "the port is not used"
        node.event(8, Assertion.OCCUR, UBOE_PORT_DOWN)
        uboe = [f"present {code}" for code in (UBOE_PORT_DOWN, UBOE_SUB_HEALTH)]
        await until(lambda: node.words(8)[3:5] == uboe, 4)
        node.event(8, Assertion.RECOVER, UBOE_PORT_DOWN)
        await until(lambda: node.words(8)[-1] == f"absent {UBOE_SUB_HEALTH}", 4)
        await stays(2.5, because="twelve periods of 0.2 s pass")
        assert f"present {UBOE_SUB_HEALTH}" not in node.words(8)[5:]


async def test_the_driver_reported_it_before_a_restart(tmp_path: Path) -> None:
    ports, wired = tmp_path / "ports", tmp_path / "wired"
    ports.write_text(PORTS.format(eth="DOWN", ub="UP"))
    script(tmp_path, A5.format(ports=ports, wired=wired))
    driver = Other("Ascend910A5", Chip(8, 0, 0, 0))
    driver.main_board = 0x07
    tracked = {(chip_subject(8), UBOE_PORT_DOWN): 1, (chip_subject(8), UBOE_SUB_HEALTH): 1}
    async with running(tmp_path, links(period_seconds=0.2), tracked, driver) as node:
        await until(lambda: node.words(8) == ["answered"])
        await stays(0.5, because="two periods of 0.2 s pass")
        assert node.words(8) == ["answered"]
        node.event(8, Assertion.ABSENT, UBOE_PORT_DOWN)
        gone = {f"absent {code}" for code in (UBOE_PORT_DOWN, UBOE_SUB_HEALTH)}
        await until(lambda: gone <= set(node.words(8)[1:]), 4)


async def test_the_unified_bus_of_an_a5_follows_the_drivers_events(tmp_path: Path) -> None:
    ports, wired = tmp_path / "ports", tmp_path / "wired"
    ports.write_text(PORTS.format(eth="UP", ub="UP"))
    script(tmp_path, A5.format(ports=ports, wired=wired))
    driver = ScriptedDriver(2)
    driver.family = "Ascend910A5"
    async with running(tmp_path, links(), driver=driver) as node:
        await until(lambda: node.words(0) and node.words(1))
        node.event(0, Assertion.OCCUR, UB_PORT_DOWN)
        await until(lambda: node.words(0)[1:] == [f"present {UB_SEPARATE}"], 0.5)
        node.event(1, Assertion.OCCUR, UB_PORT_DOWN)
        plane = [f"absent {UB_SEPARATE}", f"present {UB_SUB_HEALTH}"]
        await until(lambda: node.words(0)[2:] == plane, 0.5)
        assert node.words(1)[1:] == [f"present {UB_SUB_HEALTH}"]
        node.event(0, Assertion.RECOVER, UB_PORT_DOWN)
        await until(lambda: node.words(0)[4:] == [f"absent {UB_SUB_HEALTH}"], 0.5)
        await until(
            lambda: node.words(1)[2:] == [f"absent {UB_SUB_HEALTH}", f"present {UB_SEPARATE}"]
        )
