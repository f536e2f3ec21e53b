"""Which programs reset Duo cards as one, by their arguments."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from agent.node.device_plugin import is_duo, processes_resetting_cards, resets_together
from dcmi_shim.values import Chip, Inventory


@pytest.mark.parametrize(
    ("command", "does"),
    [
        ("device-plugin -useAscendDocker=true -hotReset=0 -logLevel=0", True),
        ("/usr/local/bin/device-plugin --hotReset=0", True),
        ("/bin/bash -c -- device-plugin -volcanoType=true -hotReset 0", True),
        ("ascend-device-plugin -hotReset=0", True),
        ("device-plugin -hotReset=-1", False),
        ("device-plugin -hotReset=2", False),
        ("device-plugin -hotReset=02", False),
        ("device-plugin -volcanoType=true", False),
        ("other-device-plugin -hotReset=0", False),
        ("vigil agent -hotReset=0", False),
        ("", False),
    ],
)
def test_its_arguments(command: str, does: bool) -> None:
    assert resets_together(command) is does


def test_processes_that_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, words in (
        (10, ("device-plugin", "-hotReset=0", "")),
        (11, ("device-plugin", "-hotReset=2", "")),
        (12, ("vim", "device-plugin -hotReset=0 ", "")),
        (13, ("",)),
    ):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "cmdline").write_bytes("\0".join(words).encode())
    (tmp_path / "14").mkdir()
    # A process may end before it is looked at: its files are not there, or answer ESRCH.
    monkeypatch.setattr(Path, "stat", Mock(side_effect=ProcessLookupError))
    assert list(processes_resetting_cards(tmp_path)) == ["process 10"]


@pytest.mark.parametrize(
    ("family", "dies", "duo"),
    [("Ascend310P", 2, True), ("Ascend310P", 1, False), ("Ascend910A3", 2, False)],
)
def test_which_servers_have_such_cards(family: str, dies: int, duo: bool) -> None:
    chips = tuple(Chip(number, number, number // dies, number % dies) for number in range(4))
    assert is_duo(Inventory(chips, family, "", None, None, None, "")) is duo
