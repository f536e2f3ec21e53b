"""Chips that are silent when an agent starts keep what is known of them.

The document is followed throughout by a reader of its own: no version of it may withdraw a fault.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.node import Node
from tests.end_to_end.places import Folder
from tests.parts.following import Following

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.parts.following import Version

FAULT, LOST = "80E01801", "40F84E00"
PROFILES = {
    "a2": ("Ascend910", 8),
    "a3": ("Ascend910", 16),
    "910a": ("Ascend910", 8),
    "310p": ("Ascend310P", 4),
    "310": ("Ascend310", 4),
}


@pytest.fixture
def make_node(tmp_path: Path, built: Path) -> Iterator[Callable[[str], Node]]:
    """Makes the node of a profile; not started."""
    made: list[Node] = []

    def make(profile: str) -> Node:
        node = Node(tmp_path, built, Folder(tmp_path / "store"), profile=profile)
        node.environment |= {
            "VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS": "0.5",
            "VIGIL_CHIP_FAULTS_CARD_LOST_AFTER_SECONDS": "10",
            "VIGIL_DRIVER_PROBE_PERIOD_SECONDS": "1",
            "VIGIL_HEARTBEAT_INTERVAL_SECONDS": "1",
        }
        made.append(node)
        return node

    yield make
    for node in made:
        node.close()


def following(node: Node) -> Following:
    assert isinstance(node.place, Folder)
    return Following(node.place.root / "kube-system" / f"{node.document}.json")


def names(profile: str, *without: int) -> frozenset[str]:
    kind, count = PROFILES[profile]
    return frozenset(f"{kind}-{chip}" for chip in range(count) if chip not in without)


def has(name: str, code: str) -> Callable[[Version], bool]:
    return lambda now: code in now.levels.get(name, {})


def is_blind(node: Node, chip: int) -> bool:
    found = next((one for one in node.status()["chips"] if one["chip"] == chip), None)
    return found is not None and any(one["source"] == "chip-faults" for one in found["blind"])


@pytest.mark.parametrize("profile", PROFILES)
def test_a_chip_that_drops_while_nobody_runs_keeps_its_fault(
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
        if profile == "a2":
            document.until(has(name, LOST), "it is lost")
            assert len(document.versions) > first
        for version in document.versions[first:]:
            assert version.levels[name][FAULT] == "RestartBusiness"
            assert version.times[name][FAULT] == since
            assert name in version.unhealthy
            assert version.free == names(profile, 3), "the others stay free throughout"
        node.emulator.restore(3)
        document.until(lambda now: set(now.levels.get(name, {})) == {FAULT}, "it answers", 30)
        node.emulator.recover(3, FAULT)
        document.until(lambda now: now.free == names(profile), "its recovery counts")
    assert f"--chip {name}" in node.logged()
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
        node.emulator.restore(3)
        node.emulator.recover(3, FAULT)
        document.until(lambda now: now.free == names("a2", 5), "it answers and is well")
