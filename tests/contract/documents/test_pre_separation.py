"""Chips whose fault is a pre-separation: clusterd#E19, and what the example leaves open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.documents import device_info
from contract.documents.cluster_device import (
    device_record,
    pre_separate_device,
    render_device_entry,
)
from contract.documents.cluster_info import member, value_of
from contract.go import encode as go_json
from tests.contract.documents.clusterd_examples import EXAMPLES
from tests.contract.documents.node_documents import KEY, config, fault, names

PRE = "PreSeparateNPU"
LIVES = ("80E21007", "81078607", "110001024", "110000002", "81078603")


def lists(
    faults: list[dict[str, Any]], used: set[int] | None, **given: Any
) -> tuple[str, str, str]:
    """Return the published lists of free, unhealthy and network-unhealthy chips."""
    record = device_record(device_info.decode(config(faults, **given), "x"))
    chips = None if used is None else frozenset(f"Ascend910-{chip}" for chip in used)
    entry = json.loads(render_device_entry("n", pre_separate_device(record, chips), 1))
    devices = entry["DeviceList"]
    return devices[KEY], devices[f"{KEY}-Unhealthy"], devices[f"{KEY}-NetworkUnhealthy"]


def test_e19() -> None:
    faults = [
        fault(0, PRE, "80E21007"),
        fault(1, PRE, "80E21007"),
        fault(2, PRE, "81078603", kind="CardNetwork"),
    ]
    devices = {
        KEY: names(range(8)),
        f"{KEY}-Fault": go_json.encode(faults),
        f"{KEY}-NetworkUnhealthy": names([2]),
        f"{KEY}-Recovering": "",
        f"{KEY}-Unhealthy": names([0]),
    }
    record = device_record(device_info.decode(config(devices=devices), "x"))
    published = pre_separate_device(record, frozenset({"Ascend910-0"}))
    text = render_device_entry("node1", published, published.update_time)
    assert value_of([member("mindx-dl-deviceinfo-node1", text)]) == EXAMPLES["E19"]["output"]


def test_where_usage_is_unknown_the_lists_stay_as_the_node_reported_them() -> None:
    given = [fault(0, PRE, "80E21007"), fault(1, PRE, "80E21007")]
    assert lists(given, None, unhealthy=(1,)) == (names([0, *range(2, 8)]), names([1]), "")


@pytest.mark.parametrize("code", LIVES[1:])
def test_parameter_plane_codes_separate_no_chip(code: str) -> None:
    assert lists([fault(0, PRE, code)], set()) == (names(range(8)), "", "")


@pytest.mark.parametrize("level", ["SeparateNPU", "RestartNPU", "ManuallySeparateNPU"])
def test_a_chip_in_use_stays_unhealthy_for_another_fault(level: str) -> None:
    given = [fault(0, PRE, "80E21007"), fault(0, level, "80E18402")]
    assert lists(given, {0}, unhealthy=(0,)) == (names(range(1, 8)), names([0]), "")


@pytest.mark.parametrize("level", ["NotHandleFault", "SubHealthFault"])
def test_a_harmless_fault_beside_it_changes_nothing(level: str) -> None:
    given = [fault(0, PRE, "80E21007"), fault(0, level, "80E18402")]
    assert lists(given, {0}, unhealthy=(0,)) == (names(range(1, 8)), "", "")
    assert lists(given, set()) == (names(range(1, 8)), names([0]), "")


def test_unhealthy_chips_are_sorted() -> None:
    given = [fault(chip, PRE, "80E21007") for chip in (6, 1, 4)]
    assert lists(given, set(), unhealthy=(2,))[1] == names([1, 2, 4, 6])
