"""Outages of the API server, the driver and the disk: nothing known is lost, no part
waits for another.
"""

from __future__ import annotations

import fcntl
import random
import resource
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.agent.journal.older import OLDER_ROWS, older_journal
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from tests.end_to_end.node import Node
    from tests.parts.places import Cluster

FAULT = "80E01801"
OTHER = "80E18402"
PASSING = "80C98000"
ONCE = "80E3A201"
CODES = "dcmi_get_device_errorcode_v2"
HEALTH = "dcmi_get_device_health"


def _shows(node: Node, chip: int) -> float:
    return node.until(lambda now: now.codes(chip) == {FAULT}, f"chip {chip} is shown faulty")


@pytest.mark.apiserver
def test_kill_9_while_the_api_server_is_away(cluster_node: Node, cluster: Cluster) -> None:
    """Six times in one outage: what any of them loses is missing at its end."""
    node, chance = cluster_node, random.Random(1)
    node.start()
    node.healthy()
    node.emulator.occur(0, OTHER)
    node.until(lambda now: now.codes(0) == {OTHER}, "the first fault is shown")
    cluster.plane.kill_apiserver()
    node.emulator.occur(1, FAULT)
    node.emulator.recover(0, OTHER)
    node.emulator.once(4, ONCE)
    node.emulator.occur(6, PASSING)
    node.wait(lambda: "occur" in node.assertions(PASSING), "the passing fault is journaled")
    node.emulator.recover(6, PASSING)
    node.wait(lambda: "recover" in node.assertions(PASSING), "its recovery is journaled")
    for _ in range(6):
        let_time_pass(chance.uniform(0, 1.0))
        node.kill()
        node.start()
    cluster.plane.start_apiserver()
    assert node.until(lambda now: now.codes(1) == {FAULT}, "the fault is shown") < patience(5)
    node.until(lambda now: now.codes(4) == {ONCE}, "the once event is shown", 3)
    node.until(lambda now: not now.codes(0) and not now.codes(6), "the recoveries are shown", 3)
    assert node.assertions(PASSING)[:2] == ["occur", "recover"]
    node.until(lambda now: not now.codes(4), "the once event is released")


@pytest.mark.apiserver
def test_an_api_server_that_is_away_at_start(cluster_node: Node, cluster: Cluster) -> None:
    node = cluster_node
    cluster.plane.stop_apiserver()
    node.start()
    node.up()
    node.emulator.occur(2, FAULT)
    node.wait(lambda: bool(node.assertions(FAULT)), "the fault is journaled")
    node.wait(lambda: "cannot be published" in str(node.ask("/readyz")[1]), "it says why")
    assert node.ask("/readyz")[0] == 503
    assert node.ask("/healthz")[0] == 200
    cluster.plane.start_apiserver()
    assert node.until(lambda now: now.codes(2) == {FAULT}, "the fault is shown") < patience(5)
    ready = (200, {"ready": True, "reasons": []})
    node.wait(lambda: node.ask("/readyz") == ready, "both documents are settled", 3)
    for what in ("cannot be published", "the store answers again"):
        node.waits_for_text(f"{node.document}: {what}")
        assert node.logged().count(f"{node.document}: {what}") == 1
    assert node.process.status is None


@pytest.mark.apiserver
def test_an_api_server_that_freezes(cluster_node: Node, cluster: Cluster) -> None:
    node = cluster_node
    node.start()
    node.healthy()
    cluster.plane.pause_apiserver()
    node.emulator.occur(2, FAULT)
    nothing_happens_for(6, because="longer than the deadline of a request, 5 s")
    node.emulator.occur(3, FAULT)
    node.wait(lambda: node.assertions(FAULT).count("occur") == 2, "both faults are journaled")
    assert node.ask("/healthz")[0] == 200
    cluster.plane.resume_apiserver()
    node.until(lambda now: bool(now.codes(2) and now.codes(3)), "both faults are shown")
    status, seconds = node.stop()
    assert (status, seconds < patience(5)) == (0, True)


@pytest.mark.parametrize("function", [CODES, HEALTH, "dcmi_init"])
def test_sigterm_does_not_wait_for_the_driver(folder_node: Node, function: str) -> None:
    node = folder_node
    if function == "dcmi_init":
        node.emulator.hang(function)
    node.start()
    if function == "dcmi_init":
        node.up()
    else:
        node.healthy()
        node.emulator.hang(function)
        node.emulator.occur(1, FAULT)
    nothing_happens_for(2.3, because="the list is asked for LAG_SECONDS, 2, after the event")
    status, seconds = node.stop()
    assert (status, seconds < patience(5)) == (0, True), node.logged()
    assert node.journal("stop")


def test_a_driver_that_cannot_be_initialised_is_waited_for(folder_node: Node) -> None:
    node = folder_node
    node.emulator.fail("dcmi_init", -8005)
    node.start()
    node.up()
    why = "the driver has not answered yet: dcmi_init answered -80"
    node.wait(
        lambda: node.ask("/readyz")[1]["reasons"][0].startswith(why), "the reason is reported", 20
    )
    assert node.ask("/readyz")[0] == 503
    assert node.shown() is None, "a chip that was never read is in no list"
    node.emulator.clear("dcmi_init")
    node.healthy()


def test_a_full_disk_costs_nothing_that_is_known(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    before = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (8192, before[1]))
    for chip in range(4):
        node.emulator.occur(chip, FAULT)
        assert _shows(node, chip) < patience(1)
    node.emulator.recover(0, FAULT)
    node.until(lambda now: not now.codes(0), "the recovery is shown")
    # The journal commits beside the publication.
    node.wait(lambda: node.status()["journal"]["trouble"] is not None, "the journal fails")
    node.wait(lambda: "npu_vigil_journal_failing 1.0" in node.ask("/metrics")[1], "and its metric")
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, before)
    node.wait(lambda: node.status()["journal"]["trouble"] is None, "the journal works again")
    node.wait(lambda: node.status()["journal"]["rows_held"] == 0, "everything is written")
    node.kill()
    assert node.assertions(FAULT) == ["occur"] * 4 + ["recover"]
    # A disk that is busy with other work adds gaps of its own.
    reasons = [gap["reason"] for gap in node.journal("gap")]
    assert len([reason for reason in reasons if "takes longer than" not in reason]) == 1, reasons
    assert node.logged().count("publishing continues without it") == 1
    node.start()
    node.until(lambda now: set(now.faults) == {f"Ascend910-{chip}" for chip in (1, 2, 3)}, "kept")


def test_no_fault_is_lost_with_a_journal_of_an_older_schema(folder_node: Node) -> None:
    node = folder_node
    node.emulator.occur(1, FAULT)
    node.start()
    node.until(lambda now: now.codes(1) == {FAULT}, "the fault is shown")
    node.stop()
    for file in node.state_dir.glob("journal.sqlite*"):
        file.unlink()
    older = older_journal(node.state_dir)
    # Only the published document has this fault: its chip gives no answer.
    node.emulator.hang(CODES, 1)
    node.emulator.occur(2, OTHER)
    node.start()
    node.until(lambda now: now.codes(2) == {OTHER}, "an audit found a fault")
    assert node.shown() is not None
    node.until(lambda now: now.codes(1) == {FAULT}, "the published fault is still shown", 1)
    # A disk that is busy with other work adds lines about slow commits, and gaps of its own.
    (gap,) = [gap for gap in node.journal("gap") if gap["reason"].startswith("its schema is ")]
    assert gap["rows_lost"] == OLDER_ROWS
    logged = node.logged().splitlines()
    warnings = [line for line in logged if f"journal {older}: its schema is " in line]
    assert len(warnings) == 1, warnings
    assert " WARNING agent.journal: " in warnings[0]


def test_without_a_journal_the_store_is_the_memory(node: Node) -> None:
    node.emulator.occur(1, FAULT)
    node.emulator.occur(2, OTHER)
    node.start()
    node.until(lambda now: bool(now.codes(1) and now.codes(2)), "the faults are shown")
    since = {fault["code"]: fault["since_ms"] for fault in node.status()["faults"]}
    node.kill()
    shutil.rmtree(node.state_dir)
    node.emulator.recover(2, OTHER)
    # A chip that cannot be asked keeps what is known of it.
    node.emulator.hang(CODES, 1)
    node.start()
    node.until(lambda now: not now.codes(2), "the recovery is shown")
    node.until(lambda now: now.unhealthy == {"Ascend910-1"}, "the fault is shown")
    assert node.status()["faults"][0]["since_ms"] == since[FAULT]
    node.wait(lambda: bool(node.status()["chips"][1]["blind"]), "its call hangs", 10)


def test_two_thousand_events_at_once(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    # None of them with a frequency rule, which would isolate all chips.
    codes = ("8C204E00", "80E18402", "80CF8000", "80CB8002", "80E21007")
    for round_ in range(25):
        for chip in range(8):
            for code in codes:
                node.emulator.occur(chip, code)
                if round_ < 24 or chip % 2:
                    node.emulator.recover(chip, code)
    faulty = {f"Ascend910-{chip}" for chip in (0, 2, 4, 6)}
    node.until(
        lambda now: (
            set(now.faults) == faulty
            and all(len(faults) == len(codes) for faults in now.faults.values())
        ),
        "the last state is shown",
        20,
    )
    nothing_happens_for(4, because="the lists are asked for LAG_SECONDS, 2, after the last event")
    document = node.shown()
    assert document is not None
    assert set(document.faults) == faulty, "audits found something else"
    # A slow commit is a trouble until the next one.
    node.wait(lambda: node.status()["journal"]["trouble"] is None, "the journal works")
    node.kill()
    node.start()
    node.until(lambda now: set(now.faults) == faulty, "and after a restart")


def test_sigterm_while_a_store_holds_a_thread(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    assert isinstance(node.place, Folder)
    with (node.place.root / "kube-system" / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node.emulator.occur(1, FAULT)
        node.wait(lambda: bool(node.assertions(FAULT)), "the fault is journaled")
        let_time_pass(0.1)
        status, seconds = node.stop()
    assert (status, seconds < patience(5)) == (0, True), node.logged()
    assert node.journal("stop")
