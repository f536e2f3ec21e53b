"""NPU exporter's names, beside what the real NPU exporter showed of the same faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.parts.exposition import RECORDED

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

    from tests.end_to_end.node import Node

THEIRS = ("machine_", "npu_chip_")
FAULTS = {
    1: ("8C1F8609",),
    2: ("80E01801", "80E18402"),
    5: ("80CD8809",),
    6: ("80F3A008",),
    7: ("81078603",),
}


def scraped(node: Node) -> dict[str, Metric]:
    """Return the metrics with NPU exporter's names; check that each series occurs once."""
    status, text = node.ask("/metrics")
    assert status == 200
    families = [
        family
        for family in text_string_to_metric_families(text)
        if family.name.startswith(THEIRS) and family.samples
    ]
    series = [(s.name, *sorted(s.labels.items())) for family in families for s in family.samples]
    assert len(series) == len(set(series))
    return {family.name: family for family in families}


def values(shown: dict[str, Metric]) -> dict[str, dict[str, float]]:
    """Return the values that the exporter shows, by metric and chip."""
    return {
        name: {sample.labels.get("id", ""): sample.value for sample in metric.samples}
        for name, metric in shown.items()
    }


def shows(node: Node, recorded: dict[str, dict[str, float]]) -> bool:
    """Return whether all recorded values are shown."""
    shown = values(scraped(node))
    return all(shown.get(name) == value for name, value in recorded.items())


def start(node: Node) -> None:
    node.environment["VIGIL_METRICS_NPU_EXPORTER_NAMES"] = "true"
    node.environment["VIGIL_CHIP_FAULTS_HEALTH_PERIOD_SECONDS"] = "0.2"
    node.environment["VIGIL_LINKS_PERIOD_SECONDS"] = "1"
    node.start()
    node.healthy()
    node.wait(lambda: "npu_chip_info_network_status" in scraped(node), "metrics are complete")


def test_names_types_helps_and_labels_are_theirs(folder_node: Node) -> None:
    start(folder_node)
    folder_node.emulator.occur(2, "80E01801")
    folder_node.emulator.occur(2, "80E18402")
    folder_node.wait(lambda: "npu_chip_info_error_code_1" in scraped(folder_node), "two codes")
    for name, metric in scraped(folder_node).items():
        recorded = RECORDED["metrics"][name]
        assert metric.type == recorded["type"], name
        assert metric.documentation == recorded["help"], name
        for sample in metric.samples:
            assert sorted(sample.labels) == recorded["labels"], name
            assert sample.timestamp is None


def test_the_cards_are_named_as_they_name_them(folder_node: Node) -> None:
    start(folder_node)

    def health() -> list[Sample]:
        return scraped(folder_node)["npu_chip_info_health_status"].samples

    folder_node.wait(lambda: all(one.labels["model_name"] for one in health()), "they have names")
    samples = health()
    for sample in samples:
        assert sample.labels["model_name"] == "910B3-Ascend-V1"
        assert sample.labels["pcie_bus_info"].startswith("0000:")
        assert [len(word) for word in sample.labels["vdie_id"].split("-")] == [8] * 5
    for label in ("id", "pcie_bus_info", "vdie_id"):
        assert len({sample.labels[label] for sample in samples}) == 8


def test_the_recorded_faults_show_the_recorded_values(folder_node: Node) -> None:
    start(folder_node)
    healthy = RECORDED["values"]["healthy"]
    folder_node.wait(lambda: shows(folder_node, healthy), "the values of the healthy server", 15)
    for chip, codes in FAULTS.items():
        for code in codes:
            folder_node.emulator.occur(chip, code)
    faulty = RECORDED["values"]["faults"]
    folder_node.wait(lambda: shows(folder_node, faulty), "the values of the faulty server", 15)


def test_a_chip_that_gives_no_answer_has_no_sample_and_is_unknown(folder_node: Node) -> None:
    start(folder_node)
    folder_node.emulator.hang("dcmi_get_device_health", 3)
    folder_node.emulator.fail("dcmi_get_device_network_health", -8012, 3)

    def blind() -> bool:
        shown = values(scraped(folder_node))
        return shown["machine_unknown_npu_nums"] == {"": 1} and not any(
            "3" in shown[name]
            for name in ("npu_chip_info_health_status", "npu_chip_info_network_status")
        )

    folder_node.wait(blind, "chip 3 has no sample", seconds=15)
    assert values(scraped(folder_node))["machine_healthy_npu_nums"] == {"": 7}
    assert values(scraped(folder_node))["machine_npu_nums"] == {"": 8}
    assert 'npu_vigil_blind{chip="3",source="chip-faults"} 1.0' in folder_node.ask("/metrics")[1]


def test_value_that_the_driver_lacks_is_an_empty_label(folder_node: Node) -> None:
    folder_node.emulator.fail("dcmi_get_device_die_v2", -8255)
    folder_node.emulator.fail("dcmi_get_device_pcie_info_v2", -8008)
    folder_node.emulator.fail("dcmi_get_device_network_health", -8255)
    folder_node.environment["VIGIL_METRICS_NPU_EXPORTER_NAMES"] = "true"
    folder_node.start()
    folder_node.healthy()

    def named() -> bool:
        metric = scraped(folder_node).get("npu_chip_info_name")
        return metric is not None and all(
            (one.labels["name"], one.labels["vdie_id"], one.labels["pcie_bus_info"])
            == ("910B3-Ascend-V1", "", "")
            for one in metric.samples
        )

    folder_node.wait(named, "the cards have their names")
    assert "npu_chip_info_network_status" not in scraped(folder_node)
    folder_node.waits_for_text("metrics lack names of chip 0")


def test_they_are_off_unless_configured(folder_node: Node) -> None:
    folder_node.start()
    folder_node.healthy()
    assert scraped(folder_node) == {}
