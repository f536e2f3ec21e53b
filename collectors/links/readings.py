"""Readings of a chip's network that are no faults, under NPU exporter's names.

``docs/spec/dcmi.md#9.3``, the rows whose source is ``hccn_tool``. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.record import Record
from dcmi_shim.hccn.tool import COUNTERS, LINK_UPS, OPTICAL, SPEED, ToolQuestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dcmi_shim.hccn.answers import Optical

_NETWORK_LANES = range(4)
_COUNTERS = {
    "npu_chip_mac_rx_bad_pkt_num": "mac_rx_bad_pkt_num",
    "npu_chip_mac_tx_bad_pkt_num": "mac_tx_bad_pkt_num",
    "npu_chip_mac_rx_bad_oct_num": "mac_rx_bad_oct_num",
    "npu_chip_mac_tx_bad_oct_num": "mac_tx_bad_oct_num",
    "npu_chip_mac_rx_pause_num": "mac_rx_mac_pause_num",
    "npu_chip_mac_tx_pause_num": "mac_tx_mac_pause_num",
    "npu_chip_mac_rx_pfc_pkt_num": "mac_rx_pfc_pkt_num",
    "npu_chip_mac_tx_pfc_pkt_num": "mac_tx_pfc_pkt_num",
    "npu_chip_info_rx_fcs_num": "mac_rx_fcs_err_pkt_num",
    "npu_chip_info_rx_ecn_num": "roce_ecn_db_num",
    "npu_chip_roce_rx_err_pkt_num": "roce_rx_err_pkt_num",
    "npu_chip_roce_tx_err_pkt_num": "roce_tx_err_pkt_num",
    "npu_chip_roce_rx_all_pkt_num": "roce_rx_all_pkt_num",
    "npu_chip_roce_tx_all_pkt_num": "roce_tx_all_pkt_num",
    "npu_chip_roce_rx_cnp_pkt_num": "roce_rx_cnp_pkt_num",
    "npu_chip_roce_tx_cnp_pkt_num": "roce_tx_cnp_pkt_num",
    "npu_chip_roce_new_pkt_rty_num": "roce_new_pkt_rty_num",
    "npu_chip_roce_out_of_order_num": "roce_out_of_order_num",
    "npu_chip_roce_qp_status_err_num": "roce_qp_status_err_num",
    "npu_chip_roce_unexpected_ack_num": "roce_unexpected_ack_num",
    "npu_chip_roce_verification_err_num": "roce_verification_err_num",
}


def _speed(speed: int | None) -> Mapping[str, float]:
    return {} if speed is None else {"npu_chip_link_speed": float(speed)}


def _ups(ups: int) -> Mapping[str, float]:
    return {"npu_chip_link_up_num": float(ups)}


def _optical(optical: Optical) -> Mapping[str, float]:
    numbers = {
        "npu_chip_optical_vcc": optical.number("Vcc"),
        "npu_chip_optical_temp": optical.number("temperature"),
    }
    for network_lane in _NETWORK_LANES:
        numbers[f"npu_chip_optical_tx_power_{network_lane}"] = optical.number(
            f"Tx_Power{network_lane}"
        )
        numbers[f"npu_chip_optical_rx_power_{network_lane}"] = optical.number(
            f"Rx_Power{network_lane}"
        )
    if optical.present is not None:
        numbers["npu_chip_optical_state"] = float(optical.present)
    return {name: value for name, value in numbers.items() if value is not None}


def _counters(counters: Mapping[str, int]) -> Mapping[str, float]:
    return {name: float(counters[key]) for name, key in _COUNTERS.items() if key in counters}


class Readings(Record, frozen=True):
    """One question, and the readings in its answer by metric name."""

    question: ToolQuestion[Any]
    named: Callable[[Any], Mapping[str, float]]


SLOW_ROUND = (
    Readings(SPEED, _speed),
    Readings(LINK_UPS, _ups),
    Readings(OPTICAL, _optical),
    Readings(COUNTERS, _counters),
)
"""What is asked of each chip from time to time, where metrics under these names are wanted."""
