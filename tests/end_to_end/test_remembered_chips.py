"""Chips that are silent when an agent starts keep what is known of them.

The document is followed throughout by a reader of its own: no version of it may withdraw a fault.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from contract.codes.levels import Severity
from tests.acceptance.hardware import Chip, Hardware, compile_library
from tests.acceptance.reading import signed
from tests.end_to_end.node import Node
from tests.end_to_end.remembered import (
    FAULT,
    LOST,
    PROFILES,
    QUICK,
    following,
    forget,
    has,
    is_blind,
    names,
)
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.parts.following import Following
    from tests.parts.places import Cluster


@pytest.fixture
def make_node(tmp_path: Path, built: Path) -> Iterator[Callable[[str], Node]]:
    """Yield a function that makes the node of a profile; its agent is not started."""
    made: list[Node] = []

    def make(profile: str) -> Node:
        node = Node(tmp_path, built, Folder(tmp_path / "store"), profile=profile)
        node.environment |= QUICK
        made.append(node)
        return node

    yield make
    for node in made:
        node.close()


@pytest.mark.parametrize("profile", ["a2", "a3", "310p", "duo", "a5"])
def test_a_chip_that_drops_while_no_agent_runs_keeps_its_fault(
    make_node: Callable[[str], Node], profile: str
) -> None:
    node = make_node(profile)
    name = f"{PROFILES[profile][0]}-3"
    node.start()
    with following(node) as document:
        document.until(lambda now: now.free == names(profile), "all are free")
        node.emulator.occur(3, FAULT)
        document.until(has(name, FAULT), "the fault")
        since = document.last.times[name][FAULT]
        first = len(document.versions)
        node.stop()
        node.emulator.drop(3, hard=True)
        node.start()
        node.up()
        node.wait(lambda: is_blind(node, 3), "it is blind")
        node.emulator.occur(2, FAULT)
        document.until(has(f"{PROFILES[profile][0]}-2", FAULT), "another chip has a fault")
        for version in document.versions[first:]:
            assert version.levels[name][FAULT] == "RestartBusiness"
            assert version.times[name][FAULT] == since
            assert name in version.unhealthy
            assert version.free >= names(profile, 2, 3), "the others stay free throughout"
        node.emulator.return_card(3)
        node.emulator.recover(3, FAULT)
        document.until(lambda now: now.free == names(profile, 2), "its recovery counts")
    node.waits_for_text(f"--chip {name}")
    assert node.logged().count("does not list it: what is known") == 1


def test_with_its_state_directory_lost_the_document_is_the_memory(
    make_node: Callable[[str], Node],
) -> None:
    node = make_node("a2")
    node.start()
    with following(node) as document:
        document.until(lambda now: now.free == names("a2"), "all are free")
        node.emulator.occur(3, FAULT)
        document.until(has("Ascend910-3", FAULT), "the fault")
        since = document.last.times["Ascend910-3"][FAULT]
        first = len(document.versions)
        node.stop()
        node.emulator.drop(3, hard=True)
        shutil.rmtree(node.state_dir)
        node.start()
        node.up()
        node.wait(lambda: is_blind(node, 3), "it is blind")
        node.emulator.occur(5, FAULT)
        document.until(has("Ascend910-5", FAULT), "another chip has a fault")
        for version in document.versions[first:]:
            assert version.times["Ascend910-3"][FAULT] == since
            assert version.free >= names("a2", 3, 5)
        node.emulator.return_card(3)
        node.emulator.recover(3, FAULT)
        document.until(lambda now: now.free == names("a2", 5), "it answers and is well")


CARDS = tuple(Chip(number, 0, number, number) for number in range(4))


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    """Return four cards with another driver library."""
    directory = tmp_path / "library"
    directory.mkdir()
    return Hardware(tmp_path / "other", compile_library(directory), CARDS)


@pytest.fixture
def node(make_node: Callable[[str], Node], hardware: Hardware) -> Node:
    """Return a node with the driver library of ``hardware``; its agent is not started."""
    node = make_node("a2")
    node.driver_root = hardware.root
    return node


def all_but(*without: int) -> frozenset[str]:
    return frozenset(f"Ascend910-{chip}" for chip in range(4) if chip not in without)


def begin(node: Node, document: Following, hardware: Hardware) -> int:
    """Start, raise a fault on chip 2, stop; how many versions there are."""
    node.start()
    document.until(lambda now: now.free == all_but(), "all are free")
    hardware.occur(2, FAULT)
    document.until(has("Ascend910-2", FAULT), "the fault")
    node.stop()
    return len(document.versions)


def test_a_driver_that_lists_no_chip_proves_nothing_of_their_faults(
    node: Node, hardware: Hardware
) -> None:
    with following(node) as document:
        first = begin(node, document, hardware)
        hardware.list_chips(())
        node.start()
        node.up()
        node.wait(lambda: all(is_blind(node, chip) for chip in range(4)), "all are blind")
        document.until(lambda now: not now.free, "none is free")
        assert node.ask("/readyz")[0] == 503
        for version in document.versions[first:]:
            assert version.levels["Ascend910-2"] == {FAULT: "RestartBusiness"}
            assert version.unhealthy == {"Ascend910-2"}
        document.until(lambda now: len(now.levels) == 4, "all alike are lost")
        assert all(LOST in codes for codes in document.last.levels.values())
        hardware.list_chips(CARDS)
        document.until(lambda now: now.free == all_but(2), "they are back")
        assert set(document.last.levels["Ascend910-2"]) == {FAULT}
        node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")


def test_without_a_driver_the_document_stays_as_it_is(node: Node, hardware: Hardware) -> None:
    with following(node) as document:
        first = begin(node, document, hardware)
        away = hardware.library.with_name("away")
        hardware.library.rename(away)
        node.start()
        node.up()
        node.wait(lambda: all(is_blind(node, chip) for chip in range(4)), "all are blind")
        assert node.ask("/readyz")[0] == 503
        assert node.ask("/healthz")[0] == 200
        away.rename(hardware.library)
        node.wait(lambda: node.ask("/readyz")[0] == 200, "it is found")
        hardware.recover(2, FAULT)
        document.until(lambda now: now.free == all_but(), "its recovery counts")
        for version in document.versions[first:-1]:
            assert version.free == all_but(2)
            assert version.levels == {"Ascend910-2": {FAULT: "RestartBusiness"}}
    assert LOST not in str(node.journal("changes"))


def test_with_state_and_driver_lost_the_document_stays_as_it_is(
    node: Node, hardware: Hardware
) -> None:
    with following(node) as document:
        first = begin(node, document, hardware)
        shutil.rmtree(node.state_dir)
        away = hardware.library.with_name("away")
        hardware.library.rename(away)
        hardware.list_chips(one for one in CARDS if one.physical != 2)
        node.start()
        node.up()
        node.wait(lambda: "does not exist" in str(node.ask("/readyz")[1]), "it reports why")
        assert len(document.versions) == first
        away.rename(hardware.library)
        node.wait(lambda: is_blind(node, 2), "it is blind")
        document.until(has("Ascend910-2", LOST), "it is lost")
        for version in document.versions[first:]:
            assert has("Ascend910-2", FAULT)(version)
            assert version.free == all_but(2)


def test_ids_that_shift_when_a_card_is_gone(node: Node, hardware: Hardware) -> None:
    for chip in range(4):
        hardware.name_die(chip, 100 + chip)
    with following(node) as document:
        first = begin(node, document, hardware)
        # Card 1 is gone: what was chip 2 is chip 1 now.
        for chip, die in enumerate((100, 102, 103)):
            hardware.name_die(chip, die)
        hardware.list_code(1, FAULT)
        hardware.unlist_code(2, FAULT)
        hardware.list_chips(CARDS[:3])
        node.start()
        document.until(has("Ascend910-1", FAULT), "the fault follows its chip")
        for version in document.versions[first:]:
            assert [set(codes) for codes in version.levels.values()] == [{FAULT}]
        assert document.last.free == {"Ascend910-0", "Ascend910-2"}, "3 is the missing one now"
        node.wait(lambda: is_blind(node, 3), "it is blind")
        hardware.unlist_code(1, FAULT)
        hardware.event(1, FAULT, 0)
        document.until(lambda now: now.free == all_but(3), "its recovery counts")


def test_a_card_that_was_replaced_begins_anew(node: Node, hardware: Hardware) -> None:
    for card in range(4):
        hardware.write(f"serial.{card}", f"2102{card}")
    with following(node) as document:
        begin(node, document, hardware)
        hardware.unlist_code(2, FAULT)
        hardware.write("serial.2", "21029")
        node.start()
        document.until(lambda now: now.free == all_but(), "the new card is well")

    def ended() -> list[str]:
        return [change["because"] for change in node.changes() if change["kind"] == "ended"]

    # The journal commits beside the publication.
    node.wait(lambda: ended() != [], "the end is journaled")
    assert ended() == ["its card was replaced by another one"]


@pytest.mark.parametrize("runs", [True, False])
def test_a_card_that_was_taken_out_is_forgotten(node: Node, hardware: Hardware, runs: bool) -> None:
    with following(node) as document:
        begin(node, document, hardware)
        hardware.list_chips(one for one in CARDS if one.physical != 2)
        if runs:
            node.start()
            node.up()
            node.wait(lambda: is_blind(node, 2), "it is blind")
        assert forget(node, "Ascend910-1", "--yes").returncode == 1, "it answers"
        output = forget(node, "Ascend910-2")
        assert (output.returncode, "nothing was changed" in output.stdout) == (0, True)
        assert has("Ascend910-2", FAULT)(document.last)
        output = forget(node, "Ascend910-2", "--yes")
        assert (output.returncode, output.stdout) != (1, ""), output
        if not runs:
            node.start()
            node.up()
        document.until(lambda now: "Ascend910-2" not in now.named, "it is forgotten")
        assert document.last.free == all_but(2)
        assert [chip["chip"] for chip in node.status()["chips"]] == [0, 1, 3]
        node.stop()
        hardware.list_chips(CARDS)
        node.start()
        document.until(has("Ascend910-2", FAULT), "it is there again, as a new one")
    assert "forgotten" in str(node.journal("reports"))


def test_a_healthy_chip_that_is_missing_is_in_no_list(node: Node, hardware: Hardware) -> None:
    with following(node) as document:
        first = begin(node, document, hardware)
        hardware.list_chips(CARDS[:3])
        node.start()
        document.until(lambda now: now.free == {"Ascend910-0", "Ascend910-1"}, "3 is not free")
        for version in document.versions[first:]:
            assert "Ascend910-3" not in version.unhealthy
            assert has("Ascend910-2", FAULT)(version)
        unknown = "npu_vigil_chips_unknown 1.0"
        node.wait(lambda: unknown in node.ask("/metrics")[1], "it is counted as unknown")
        assert "npu_vigil_chips 4.0" in node.ask("/metrics")[1]


def test_a_state_directory_of_another_machine_is_set_aside(node: Node, hardware: Hardware) -> None:
    with following(node) as document:
        begin(node, document, hardware)
        node.place.delete(node.document)
    with closing(sqlite3.connect(node.state_dir / "journal.sqlite")) as connection:
        (body,) = connection.execute(
            "SELECT body FROM rows WHERE kind = 'snapshot' ORDER BY sequence DESC LIMIT 1"
        ).fetchone()
        other = json.dumps(json.loads(body) | {"machine": "0123456789abcdef"})
        connection.execute("UPDATE rows SET body = ? WHERE body = ?", (other, body))
        connection.commit()
    hardware.list_chips(CARDS[:2])
    node.start()
    with following(node) as document:
        document.until(lambda now: now.free == {"Ascend910-0", "Ascend910-1"}, "its own chips")
        assert document.last.named == {"Ascend910-0", "Ascend910-1"}
    node.waits_for_text("another machine")


def test_a_new_machine_with_fewer_chips_names_them_and_the_verb(
    node: Node, hardware: Hardware
) -> None:
    with following(node) as document:
        begin(node, document, hardware)
        shutil.rmtree(node.state_dir)
        hardware.list_chips(CARDS[:2])
        node.start()
        document.until(lambda now: now.free == {"Ascend910-0", "Ascend910-1"}, "its own chips")
        assert has("Ascend910-2", FAULT)(document.last)
        for name in ("Ascend910-2", "Ascend910-3"):
            node.waits_for_text(f"vigil forget --chip {name} --state-dir {node.state_dir}")


def entry(name: str, code: str) -> str:
    level = "RestartBusiness"
    fault = {
        "fault_type": "CardUnhealthy",
        "npu_name": name,
        **dict.fromkeys(("large_model_fault_level", "fault_level", "fault_handling"), level),
        "fault_code": code,
        "fault_time_and_level_map": {code: {"fault_time": 1_795_000_000_000, "fault_level": level}},
    }
    return json.dumps([fault], separators=(",", ":"))


@pytest.mark.apiserver
def test_the_list_of_another_program_counts_when_it_is_gone(
    tmp_path: Path, built: Path, cluster: Cluster, hardware: Hardware
) -> None:
    node = Node(tmp_path, built, cluster)
    node.driver_root = hardware.root
    try:
        node.start()
        node.until(lambda now: now.free == all_but(), "all are free")
        hardware.occur(2, FAULT)
        node.until(lambda now: now.codes(2) == {FAULT}, "the fault")
        node.stop()
        # A plugin was started when card 2 had been taken out, and saw card 3 fall ill and go.
        kind = "huawei.com/Ascend910"
        devices = {
            kind: "Ascend910-0,Ascend910-1",
            f"{kind}-Fault": entry("Ascend910-3", FAULT),
            **dict.fromkeys((f"{kind}-NetworkUnhealthy", f"{kind}-Recovering"), ""),
            f"{kind}-Unhealthy": "Ascend910-3",
        }
        theirs = {
            "DeviceInfoCfg": signed(devices, int(time.time())),
            "ManuallySeparateNPU": "",
            "UpgradeFaultReason": "{}",
        }
        path = f"/api/v1/namespaces/kube-system/configmaps/{node.document}"
        cluster.plane.request("PATCH", f"{path}?fieldManager=device-plugin", {"data": theirs})
        hardware.list_chips(CARDS[:2])
        node.start()
        node.up()
        node.wait(lambda: "is left to" in str(node.ask("/readyz")[1]), "it is left to the plugin")
        node.wait(lambda: is_blind(node, 2) and is_blind(node, 3), "both are missing")
        left = cluster.read(node.document)
        assert left is not None
        assert left["DeviceInfoCfg"] == theirs["DeviceInfoCfg"], "nothing remembered is written"
        cluster.delete(node.document)
        node.until(lambda now: now.codes(3) == {FAULT}, "what it had is remembered")
        shown = node.shown()
        assert shown is not None
        assert not shown.codes(2)
        assert shown.unhealthy == {"Ascend910-3"}
        assert shown.free == {"Ascend910-0", "Ascend910-1"}
    finally:
        node.close()


def test_a_driver_that_gives_no_list_proves_nothing(make_node: Callable[[str], Node]) -> None:
    node = make_node("910a")
    node.start()
    with following(node) as document:
        document.until(lambda now: now.free == names("910a"), "all are free")
        node.emulator.occur(3, FAULT)
        document.until(has("Ascend910-3", FAULT), "the fault")
        node.stop()
        before = len(document.versions)
        node.emulator.fail("dcmi_get_card_list", -8005)
        node.start()
        node.up()
        node.wait(lambda: all(is_blind(node, chip) for chip in range(8)), "all are blind")
        assert node.ask("/readyz")[0] == 503
        assert len(document.versions) == before
        node.emulator.clear("dcmi_get_card_list")
        node.wait(lambda: node.ask("/readyz")[0] == 200, "it is ready")
        for version in document.versions[before:]:
            assert version.free == names("910a", 3)
            assert has("Ascend910-3", FAULT)(version)


@pytest.mark.parametrize("left", [3, 0])
def test_the_journal_of_the_release_before_is_read(
    node: Node, hardware: Hardware, left: int
) -> None:
    """It has the ids of chips alone; where no card is left, the document shows the family."""
    with following(node) as document:
        first = begin(node, document, hardware)
        with closing(sqlite3.connect(node.state_dir / "journal.sqlite")) as connection:
            rows = connection.execute("SELECT sequence, body FROM rows").fetchall()
            for sequence, body in rows:
                connection.execute(
                    "UPDATE rows SET body = ? WHERE sequence = ?", (as_before(body), sequence)
                )
            connection.commit()
        hardware.list_chips([chip for chip in CARDS[:left] if chip.physical != 2])
        node.start()
        node.up()
        node.wait(lambda: is_blind(node, 2), "it is blind")
        document.until(lambda now: "Ascend910-3" not in now.free, "3 is missing, too")
        for version in document.versions[first:]:
            assert set(version.levels) == {"Ascend910-2"}


def as_before(body: str) -> str:
    """Return the body of a journal row as the release before would have written it."""
    found = json.loads(body)
    if isinstance(found, list):
        return json.dumps([one for one in found if one.get("type") != "listed"])
    if "chips" in found and "revision" in found:
        for name in ("machine", "server"):
            found.pop(name, None)
        for chip in found["chips"].values():
            for name in ("place", "silent", "settled_at_ms"):
                chip.pop(name, None)
    return json.dumps(found)


def test_the_level_of_a_code_that_no_table_has_is_remembered(
    make_node: Callable[[str], Node],
) -> None:
    node = make_node("a2")
    node.start()
    with following(node) as document:
        document.until(lambda now: now.free == names("a2"), "all are free")
        node.emulator.occur(3, "80ABCDEF", Severity.MINOR)
        document.until(has("Ascend910-3", "80ABCDEF"), "a mild fault")
        first = len(document.versions) - 1
        node.stop()
        shutil.rmtree(node.state_dir)
        node.emulator.drop(3, hard=True)
        node.start()
        document.until(lambda now: now.free == names("a2", 3), "it is not free")
        for version in document.versions[first:]:
            assert version.levels["Ascend910-3"] == {"80ABCDEF": "NotHandleFault"}
            assert not version.unhealthy
