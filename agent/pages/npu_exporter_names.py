"""How NPU exporter calls and explains the readings that it shows too (``dcmi#9.3``)."""

from __future__ import annotations

from collectors.links.collector import LINK_UP
from collectors.network_health import NETWORK

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
