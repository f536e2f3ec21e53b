"""Translates calls of DCMI v1 for a library of DCMI v2 (``dcmi#3``): Ascend 950 ("A5").

There a chip is one number, its logic id, which is used as the number of the card; each card has
the one device 0. Runs in the driver child: ctypes only.
"""

from __future__ import annotations

from ctypes import c_int

from dcmi_shim.library.return_codes import SYMBOL_MISSING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INIT = "dcmiv2_init"
CHIPS = "dcmiv2_get_device_list"
_SUBSCRIBE = "dcmiv2_subscribe_fault_event"
_ALL = -1
_D_DIE = 2
"""The die whose words name an A5 chip."""

_SAME = {
    "dcmi_get_device_phyid_from_logicid": "dcmiv2_get_chip_phy_id_by_dev_id",
    "dcmi_get_dcmi_version": "dcmiv2_get_dcmi_version",
}
"""Functions without a card: the v2 function takes the same arguments."""

_TWINS = {
    "dcmi_get_device_chip_info_v2": "dcmiv2_get_device_chip_info",
    "dcmi_get_device_board_info": "dcmiv2_get_device_board_info",
    "dcmi_get_mainboard_id": "dcmiv2_get_mainboard_id",
    "dcmi_get_device_hbm_info": "dcmiv2_get_device_hbm_info",
    "dcmi_get_device_pcie_info_v2": "dcmiv2_get_device_pcie_info",
    "dcmi_get_device_info": "dcmiv2_get_device_info",
    "dcmi_get_device_resource_info": "dcmiv2_get_device_proc_mem_info",
    "dcmi_get_device_utilization_rate": "dcmiv2_get_device_utilization_rate",
    "dcmi_get_device_health": "dcmiv2_get_device_health",
    "dcmi_get_device_network_health": "dcmiv2_get_device_network_health",
    "dcmi_get_device_errorcode_v2": "dcmiv2_get_device_error_code_list",
}
"""Functions about a chip: the v2 function takes one number instead of card and device."""


def call(raw: Callable[..., int], name: str, *arguments: object) -> int:
    """Let ``raw`` call the function for ``name`` of DCMI v1; return its return code."""
    match name, arguments:
        case "dcmi_get_card_list", (count, cards, room):
            return raw(CHIPS, cards, count, room)
        case "dcmi_get_device_num_in_card", (_, count):
            return _answer(count, 1)
        case "dcmi_get_device_logic_id", (logic, card, _):
            return _answer(logic, card)
        case "dcmi_get_device_die_v2", (card, _, _, die):
            return raw("dcmiv2_get_device_die_id", card, _D_DIE, die)
        case "dcmi_subscribe_fault_event", (_, _, wanted, handler):
            return raw(_SUBSCRIBE, _ALL, wanted, handler)
        case _ if name in _SAME:
            return raw(_SAME[name], *arguments)
        case _ if name in _TWINS:
            return raw(_TWINS[name], arguments[0], *arguments[2:])
    # Callers take a missing function for one that the chip does not support.
    return SYMBOL_MISSING


def _answer(address: object, value: object) -> int:
    assert isinstance(address, int)
    assert isinstance(value, int)
    c_int.from_address(address).value = value
    return 0
