"""Metrics under NPU exporter's names (``metrics.npu_exporter_names``).

Names, types, help texts and labels are those of NPU exporter (``docs/spec/dcmi.md#9``), so that
dashboards and alerts built on it still work. A call without an answer has no sample. Error codes
are those that the driver reports. Its link-down is among them, a fault that only the tool finds is
not. The code of a dropped card, of which the driver lists nothing, comes after them.

NPU exporter reads the owner of a chip from the container runtime, this agent from the annotations
of pods. The container is the one that requests chips; of several, it is not known which.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from agent.publishing.chip_lists import family_of
from collectors.chip_faults.collector import HEALTH, ChipFaultsCollector
from collectors.links.collector import LINK_UP
from collectors.network_health import NETWORK
from contract.codes.chip_codes import CARD_DROP
from contract.errors import DriverGone
from contract.observation import chip_subject
from contract.record import Record
from dcmi_shim.values import ChipNames
from service.metric_families import gauge, single_gauge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

    from prometheus_client import Metric

    from contract.observation import Subject
    from contract.pages.agent_status import HeldFaultStatus
    from dcmi_shim.driver import Driver
    from dcmi_shim.values import Chip, Inventory
    from stores.base import PodUsage

log = logging.getLogger("agent.npu_exporter")

Readings: TypeAlias = "Mapping[tuple[Subject, str], float]"

_RETRY_SECONDS = 60.0

_LABELS = (
    "container_name",
    "id",
    "model_name",
    "namespace",
    "pcie_bus_info",
    "pod_name",
    "vdie_id",
)
# NPU exporter has a metric for each of so many codes of a chip (dcmi#9.3).
_CODES = 10
_WITH_CARDS = ("Ascend310P", "Ascend910", "Ascend910B", "Ascend910A3")
"""Families of which NPU exporter counts the cards."""
_UNNAMED = ChipNames("", "", "")
_SEVERAL = "not_displayed_for_multi_pod"
_TEXTS = {
    "npu_chip_mac_rx_bad_pkt_num": "npu interface receive mac-rx-bad-pkt-num",
    "npu_chip_mac_tx_bad_pkt_num": "npu interface receive mac-tx-bad-pkt-num",
    "npu_chip_mac_rx_bad_oct_num": "npu interface receive mac-rx-bad-oct-num",
    "npu_chip_mac_tx_bad_oct_num": "npu interface receive mac-tx-bad-oct-num",
    "npu_chip_mac_rx_pause_num": "npu interface receive mac-rx-pause-num",
    "npu_chip_mac_tx_pause_num": "npu interface receive mac-tx-pause-num",
    "npu_chip_mac_rx_pfc_pkt_num": "npu interface receive mac-rx-pfc-pkt-num",
    "npu_chip_mac_tx_pfc_pkt_num": "npu interface receive mac-tx-pfc-pkt-num",
    "npu_chip_info_rx_fcs_num": "the npu network fcs receive number",
    "npu_chip_info_rx_ecn_num": "the npu network ecn receive number",
    "npu_chip_roce_rx_err_pkt_num": "npu interface receive roce-rx-err-pkt-num",
    "npu_chip_roce_tx_err_pkt_num": "npu interface receive roce-tx-err-pkt-num",
    "npu_chip_roce_rx_all_pkt_num": "npu interface receive roce-rx-all-pkt-num",
    "npu_chip_roce_tx_all_pkt_num": "npu interface receive roce-tx-all-pkt-num",
    "npu_chip_roce_rx_cnp_pkt_num": "npu interface receive roce-rx-cnp-pkt-num",
    "npu_chip_roce_tx_cnp_pkt_num": "npu interface receive roce-tx-cnp-pkt-num",
    "npu_chip_roce_new_pkt_rty_num": "npu interface receive roce-new-pkt-rty-num",
    "npu_chip_roce_out_of_order_num": "the npu interface receive roce-out-of-order-num",
    "npu_chip_roce_qp_status_err_num": "the npu interface receive roce-qp-status-err-num",
    "npu_chip_roce_unexpected_ack_num": "the npu interface receive roce-unexpected-ack-num",
    "npu_chip_roce_verification_err_num": "the npu interface receive roce-verification-err-num",
    "npu_chip_link_speed": "the npu interface receive link speed, unit is 'Mb/s'",
    "npu_chip_link_up_num": "the npu interface receive link-up num",
    "npu_chip_optical_vcc": "the npu interface receive optical-vcc",
    "npu_chip_optical_temp": "the npu interface receive optical-temperature",
    "npu_chip_optical_state": "the npu interface receive optical-state",
    "npu_chip_optical_tx_power_0": "npu interface receive optical-tx-power-0",
    "npu_chip_optical_tx_power_1": "npu interface receive optical-tx-power-1",
    "npu_chip_optical_tx_power_2": "npu interface receive optical-tx-power-2",
    "npu_chip_optical_tx_power_3": "npu interface receive optical-tx-power-3",
    "npu_chip_optical_rx_power_0": "npu interface receive optical-rx-power-0",
    "npu_chip_optical_rx_power_1": "npu interface receive optical-rx-power-1",
    "npu_chip_optical_rx_power_2": "npu interface receive optical-rx-power-2",
    "npu_chip_optical_rx_power_3": "npu interface receive optical-rx-power-3",
}
"""Readings that collectors show under NPU exporter's own names."""
SHOWN = {
    NETWORK: ("npu_chip_info_network_status", "the npu network health status"),
    LINK_UP: ("npu_chip_info_link_status", "the npu link status"),
    **{name: (name, text) for name, text in _TEXTS.items()},
}
"""Reading to name and help text; the value is the same."""


class Cards(Record, frozen=True):
    """What NPU exporter's metrics are made of. ``inventory`` is ``None`` until it was read."""

    inventory: Inventory | None
    names: Mapping[int, ChipNames]
    faults: Sequence[HeldFaultStatus]
    readings: Readings
    pods: Sequence[PodUsage] = ()


async def keep_names(driver: Driver, names: MutableMapping[int, ChipNames]) -> NoReturn:
    """Read the names of each chip once; those without an answer again a minute later."""
    codes: dict[int, tuple[str, ...]] = {}
    while True:
        for chip in (await driver.inventory()).chips:
            if chip.physical_id in names and not codes.get(chip.physical_id):
                continue
            try:
                names[chip.physical_id], problems = await driver.names(chip)
            # The other chips would fail in the same way; they are asked a minute later.
            except DriverGone:
                break
            if problems and problems != codes.get(chip.physical_id):
                log.warning("metrics lack names of %s: %s", chip, "; ".join(problems))
            codes[chip.physical_id] = problems
        await asyncio.sleep(_RETRY_SECONDS)


def families(cards: Cards) -> Iterator[Metric]:
    """Yield all metrics that have a sample now; no series twice."""
    if cards.inventory is None:
        return
    yield from _machine(cards, cards.inventory)
    labels = {chip: _labels(cards, cards.inventory, chip) for chip in cards.inventory.chips}
    health: dict[Chip, float] = {}
    for chip in cards.inventory.chips:
        word = _reading(cards, chip, HEALTH)
        if word is not None:
            health[chip] = float(word == 0)
    yield from _gauge("npu_chip_info_health_status", "the npu health status", labels, health)
    for reading, (name, text) in SHOWN.items():
        values = {
            chip: value
            for chip in cards.inventory.chips
            if (value := _reading(cards, chip, reading)) is not None
        }
        yield from _gauge(name, text, labels, values)
    yield from _error_codes(cards, cards.inventory, labels)
    yield from _names(labels)


def _reading(cards: Cards, chip: Chip, name: str) -> float | None:
    return cards.readings.get((chip_subject(chip.physical_id), name))


def _labels(cards: Cards, inventory: Inventory, chip: Chip) -> tuple[str, ...]:
    names = cards.names.get(chip.physical_id, _UNNAMED)
    namespace, pod, container = _owner(cards, family_of(inventory).device_name(chip.physical_id))
    number = str(chip.physical_id)
    return (container, number, names.model, namespace, names.pcie_address, pod, names.vdie)


def _owner(cards: Cards, device: str) -> tuple[str, str, str]:
    """Namespace, pod and container that have ``device``, as NPU exporter writes them."""
    owners = [pod for pod in cards.pods if device in pod.chips]
    match owners:
        case []:
            return "", "", ""
        case [pod]:
            return pod.namespace, pod.name, pod.container
    return _SEVERAL, _SEVERAL, _SEVERAL


def _gauge(
    name: str, text: str, labels: Mapping[Chip, tuple[str, ...]], values: Mapping[Chip, float]
) -> Iterator[Metric]:
    if values:
        yield gauge(name, text, _LABELS, ((labels[chip], value) for chip, value in values.items()))


def _machine(cards: Cards, inventory: Inventory) -> Iterator[Metric]:
    words = [_reading(cards, chip, HEALTH) for chip in inventory.chips]
    healthy = words.count(0.0)
    unknown = words.count(None)
    if inventory.family in _WITH_CARDS:
        cards_here = len({chip.card_id for chip in inventory.chips})
        text = "Amount of card installed on the machine."
        yield single_gauge("machine_card_nums", text, cards_here)
    for name, text, value in (
        ("machine_npu_nums", "Amount of npu installed on the machine.", len(words)),
        ("machine_healthy_npu_nums", "Amount of healthy npu on the machine.", healthy),
        (
            "machine_unhealthy_npu_nums",
            "Amount of unhealthy npu on the machine.",
            len(words) - healthy - unknown,
        ),
        (
            "machine_unknown_npu_nums",
            "Amount of the npus whose health status cannot be obtained"
            " via DCMI interface on the machine.",
            unknown,
        ),
    ):
        yield single_gauge(name, text, value)


def _error_codes(
    cards: Cards, inventory: Inventory, labels: Mapping[Chip, tuple[str, ...]]
) -> Iterator[Metric]:
    codes: dict[int, list[str]] = defaultdict(list)
    for fault in cards.faults:
        if fault.chip is not None and ChipFaultsCollector.name in fault.reported_by:
            codes[fault.chip].append(fault.code)
    for listed in codes.values():
        # The sort is stable: the others stay in the order of their arrival.
        listed.sort(key=lambda code: code == CARD_DROP)
    for place in range(_CODES):
        values = {
            chip: float(int(listed[place], 16))
            for chip in inventory.chips
            if len(listed := codes[chip.physical_id]) > place
        }
        suffix = f"_{place}" if place else ""
        yield from _gauge(f"npu_chip_info_error_code{suffix}", "the npu error code", labels, values)


def _names(labels: Mapping[Chip, tuple[str, ...]]) -> Iterator[Metric]:
    yield gauge(
        "npu_chip_info_name",
        "the Ascend npu name with value '1'",
        ["name" if label == "model_name" else label for label in _LABELS],
        ((values, 1) for values in labels.values()),
    )
