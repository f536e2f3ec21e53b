"""Every reading that NPU exporter has a name for, shown as it shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from agent.pages.npu_exporter import SHOWN, Cards, families
from agent.pages.status import fault_statuses
from collectors.chip_faults.collector import HEALTH
from contract.codes.chip_codes import CARD_DROP, LINK_DOWN
from contract.observation import Assertion, chip_subject
from dcmi_shim.values import Chip, ChipNames, Inventory
from stores.base import PodUsage
from tests.agent.policy.builders import T, after, healthy, seen
from tests.parts.exposition import EXPORTER, EXPORTER_TOOL, RECORDED, listed, scraped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

    from contract.observation import Report

CHIPS = tuple(Chip(number, number, number // 2, number % 2) for number in range(4))
INVENTORY = Inventory(CHIPS, "Ascend910A3", "Ascend910", None, "24.1", None, "/libdcmi.so")
NAMES = {0: ChipNames("Ascend910-Ascend-V1", "AA-BB", "0000:C1:00.0")}


def text(cards: Cards) -> str:
    """Return the exposition of the exporter's metrics."""

    class Shown(Collector):
        def collect(self) -> Iterator[Metric]:
            return families(cards)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shown())
    return generate_latest(registry).decode()


def test_every_reading_has_their_name_type_help_and_labels() -> None:
    readings = {(chip_subject(0), name): 1.0 for name in SHOWN}
    shown = text(Cards(INVENTORY, NAMES, (), readings))
    for family in text_string_to_metric_families(shown):
        recorded = RECORDED["metrics"][family.name]
        assert (family.type, family.documentation) == (recorded["type"], recorded["help"])
        assert all(sorted(sample.labels) == recorded["labels"] for sample in family.samples)
    found = scraped(shown)
    assert {name for name, _ in SHOWN.values()} <= found.keys()
    assert found.items() <= (listed(EXPORTER) | listed(EXPORTER_TOOL)).items()
    assert listed(EXPORTER_TOOL).items() <= found.items()


def test_cards_and_chips_are_counted_by_their_health() -> None:
    readings = {(chip_subject(chip), HEALTH): word for chip, word in enumerate((0.0, 0.0, 2.0))}
    samples = {
        family.name: family.samples[0].value
        for family in text_string_to_metric_families(text(Cards(INVENTORY, {}, (), readings)))
    }
    assert samples["machine_card_nums"] == 2
    assert samples["machine_npu_nums"] == 4
    assert samples["machine_healthy_npu_nums"] == 2
    assert samples["machine_unhealthy_npu_nums"] == 1
    assert samples["machine_unknown_npu_nums"] == 1


def test_error_codes_are_those_of_the_driver_whatever_reported_them_first() -> None:
    def codes(inputs: Sequence[Report]) -> dict[str, float]:
        faults = fault_statuses(after(healthy(), inputs), "Ascend910")
        shown = text_string_to_metric_families(text(Cards(INVENTORY, NAMES, faults, {})))
        named = {family.name: family for family in shown if "error_code" in family.name}
        return {sample.labels["id"]: sample.value for f in named.values() for sample in f.samples}

    found = seen(Assertion.PRESENT, LINK_DOWN, source="links")
    reported = seen(Assertion.OCCUR, LINK_DOWN, at=T + 1)
    assert codes([found]) == {}, "only the tool finds it"
    assert codes([found, reported]) == {"0": float(0x81078603)}
    not_listed = seen(Assertion.ABSENT, LINK_DOWN, at=T + 9_000)
    assert codes([reported, found, not_listed]) == {}


def test_the_code_of_a_dropped_card_is_the_last_one() -> None:
    inputs = [seen(Assertion.PRESENT, code) for code in (CARD_DROP, "80E01801")]
    faults = fault_statuses(after(healthy(), inputs), "Ascend910")
    shown = text_string_to_metric_families(text(Cards(INVENTORY, NAMES, faults, {})))
    codes = {one.name: one.samples[0].value for one in shown if "error_code" in one.name}
    assert codes == {
        "npu_chip_info_error_code": float(0x80E01801),
        "npu_chip_info_error_code_1": float(0x40F84E00),
    }


@pytest.mark.parametrize("family", ["Ascend310", "Ascend310B", "Ascend910A5"])
def test_cards_are_counted_where_npu_exporter_counts_them(family: str) -> None:
    assert "machine_card_nums 2.0" in text(Cards(INVENTORY, NAMES, (), {}))
    other = text(Cards(replace(INVENTORY, family=family), NAMES, (), {}))
    assert "machine_card_nums" not in other
    assert "machine_npu_nums 4.0" in other


def test_a_chip_has_the_labels_of_the_pod_that_has_it() -> None:
    pods = (
        PodUsage("a", "n", ("Ascend910-0", "Ascend910-1"), (), "jobs", "train-0", "worker"),
        PodUsage("b", "n", ("Ascend910-1",), (), "jobs", "train-1", "worker"),
        PodUsage("c", "n", (), ("Ascend910-3",), "jobs", "soon", "worker"),
        PodUsage("d", "n", ("Ascend910-2",), (), "jobs", "two-containers", ""),
    )
    readings = {(chip_subject(chip), HEALTH): 0.0 for chip in range(4)}
    shown = {
        family.name: family.samples
        for family in text_string_to_metric_families(text(Cards(INVENTORY, {}, (), readings, pods)))
    }
    several = "not_displayed_for_multi_pod"
    for name in ("npu_chip_info_health_status", "npu_chip_info_name"):
        assert [
            tuple(sample.labels[label] for label in ("namespace", "pod_name", "container_name"))
            for sample in shown[name]
        ] == [
            ("jobs", "train-0", "worker"),
            (several, several, several),
            ("jobs", "two-containers", ""),
            ("", "", ""),
        ]


def test_nothing_is_shown_before_the_driver_answered() -> None:
    assert text(Cards(None, {}, (), {})) == ""
