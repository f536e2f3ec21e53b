"""The calls of the fault path of ``libdcmi.so``, as the driver child makes them.

Each function of ``CALLS`` returns the library's return code and a value that is meaningful only
when that is 0. An output out of the ranges of ``dcmi#4.5`` raises ``Implausible``. Runs in
the driver child: ctypes only.
"""

from __future__ import annotations

import sys
from ctypes import c_char, c_float, c_int, c_uint, sizeof, string_at

from dcmi_shim.library import abi, second_generation
from dcmi_shim.library.binding import (
    SLACK,
    Implausible,
    known_severity,
    output,
    raised_at_ms,
    text,
    within,
)
from dcmi_shim.library.device_info import SUPER_POD, VIRTUAL_DEVICES
from dcmi_shim.library.return_codes import SYMBOL_MISSING, UNSUPPORTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import Structure

    from dcmi_shim.library.binding import Answer, Library

SIGNATURES = abi.SIGNATURES
SUBSCRIBE = "dcmi_subscribe_fault_event"
_ALL = -1
_EVENT_UNION_OFFSET = 8
_INVALID = 0xFFFFFFFF
# Limits that upstream enforces, too (dcmi#4.5).
_CARDS = 64
_DEVICES_PER_CARD = 4
_ID_MAX = 255
# The driver lists at most 128 active events (dcmi#5.5).
_CODES = 128
_VERSION_SIZE = 33
_HEALTH_LIMIT = 2**31 - 1
_NETWORK_HEALTH_MAX = 127
_VDIE = 1
# The six members without the reserve behind them (``abi.SuperPodInfo``).
_MIN_SUPER_POD = 24
_TOTAL_RESOURCE_WORDS = 90
_MAX_VIRTUAL_DEVICES = 32
# Offset of ``computing`` in ``dcmi_soc_total_resource`` (dcmi#4.1).
_AICORES_AT = 208
# Far above any chip.
_MAX_AICORES = 1024
_PRODUCT_SIZE = 65
_ROCE = 1
_PORT = 0
_IPV6 = 1
_HBM_MB_MAX = 1 << 24
_PROCESSES = 32
_PERCENT = 100


def subscribe(library: Library, handler: object) -> int:
    """Call ``handler`` for every event of every chip; return the library's return code."""
    return library.call(SUBSCRIBE, _ALL, _ALL, abi.DcmiEventFilter(), handler)


def copy_event(address: int) -> dict[str, object]:
    """Return the event at ``address``, as ``DriverEvent`` has it.

    Raises ``Implausible`` for what is none.
    """
    # The type first, because the union behind it depends on it.
    kind = int.from_bytes(string_at(address, 4), sys.byteorder)
    if kind:
        raise Implausible(f"an event of the unknown type {kind}")
    event = abi.DmsFaultEvent.from_address(address + _EVENT_UNION_OFFSET)
    return {
        "of": "chip",
        "code": event.event_id,
        "logic_id": event.deviceid,
        "severity": known_severity(event.severity),
        "assertion": event.assertion,
        "driver_raised_at_ms": raised_at_ms(event.alarm_raised_time),
        "serial": event.event_serial_num,
        "node_type": event.node_type,
        "node_id": event.node_id,
        "sub_node_type": event.sub_node_type,
        "sub_node_id": event.sub_node_id,
        "name": event.event_name.decode(errors="replace"),
        "information": event.additional_info.decode(errors="replace"),
    }


_NUMBERS: dict[str, tuple[str, int, int, type[c_int | c_uint], int | None]] = {
    "dcmi_get_device_num_in_card": ("number of devices", 1, _DEVICES_PER_CARD, c_int, None),
    "dcmi_get_device_phyid_from_logicid": ("physical id", 0, _ID_MAX, c_uint, None),
    "dcmi_get_mainboard_id": ("id of the main board", 0, _INVALID, c_uint, _INVALID),
    "dcmi_get_device_utilization_rate": ("utilization", 0, _PERCENT, c_uint, None),
    "dcmi_get_device_health": ("health", 0, _HEALTH_LIMIT - 1, c_uint, _INVALID),
    "dcmi_get_device_network_health": ("network health", 0, _NETWORK_HEALTH_MAX, c_int, None),
}
"""Functions that write one number to their last argument: its name, the least and the most that is
possible, its type, and what the driver writes where there is none."""


def _number(function: str) -> Callable[..., Answer]:
    """Return the call of ``function``, whose value is the number that it writes or ``None``."""
    name, least, most, kind, none = _NUMBERS[function]

    def call(library: Library, *arguments: int) -> Answer:
        value, address = output(kind)
        answer = library.call(function, *arguments, address)
        # Where a call failed, the output may hold anything, even a valid value (dcmi#12).
        if answer or value.value == none:
            return answer, None
        return answer, within(f"the {name}", value.value, least, most)

    return call


def init(library: Library) -> Answer:
    """Call ``dcmi_init``, or ``dcmiv2_init`` where there is no v1; its answer is the value then.

    From then on all calls go to the generation that there is (``docs/spec/dcmi.md#10.6``).
    """
    answer = library.raw("dcmi_init")
    # On a 950 all functions of v1 answer -8255, ``dcmi_init`` first (dcmi#1.2).
    if answer not in (UNSUPPORTED, SYMBOL_MISSING):
        return answer, None
    second = library.raw(second_generation.INIT)
    if second == 0 and library.has(second_generation.CHIPS):
        library.translate = second_generation.call
        return second, second
    return answer, second


def version(library: Library) -> Answer:
    """Return the DCMI version, e.g. ``24.1.rc3``."""
    memory = (c_char * (_VERSION_SIZE + SLACK))()
    answer = library.call("dcmi_get_dcmi_version", memory, _VERSION_SIZE)
    return answer, text(memory.raw) or None


def card_list(library: Library) -> Answer:
    """Return ``[number of cards, card ids]``; ids that the driver marks as absent are left out.

    A server may have lost all of its cards: none are an answer, too.
    """
    number, number_at = output(c_int)
    cards, cards_at = output(c_int * _CARDS)
    # With room for the most cards: a list that is too short is refused with -8001 (dcmi#1.5).
    answer = library.call("dcmi_get_card_list", number_at, cards_at, _CARDS)
    if answer:
        return answer, None
    count = within("the number of cards", number.value, 0, _CARDS)
    return answer, [count, [card for card in cards[:count] if card >= 0]]


def logic_id(library: Library, card: int, device: int) -> Answer:
    """Return the logic id of a chip."""
    value, address = output(c_int)
    answer = library.call("dcmi_get_device_logic_id", address, card, device)
    return answer, None if answer else within("the logic id", value.value, 0, _ID_MAX)


def _chip_name(
    library: Library, name: str, kind: type[Structure], card: int, device: int
) -> Answer:
    info, address = output(kind)
    answer = library.call(name, card, device, address)
    if answer:
        return answer, None
    words = [text(bytes(field)) for field in (info.chip_type, info.chip_name, info.chip_ver)]
    # An empty name belongs to no family, so it counts as no answer.
    if not any(words):
        raise Implausible("type, name and version of the chip are empty")
    return answer, [*words, info.aicore_cnt]


def chip_name_v2(library: Library, card: int, device: int) -> Answer:
    """Return type, name, version and AI cores of the chip by the newer call."""
    return _chip_name(library, "dcmi_get_device_chip_info_v2", abi.ChipInfoV2, card, device)


def chip_name(library: Library, card: int, device: int) -> Answer:
    """Return type, name, version and AI cores of the chip by the older call."""
    return _chip_name(library, "dcmi_get_device_chip_info", abi.ChipInfo, card, device)


def board_id(library: Library, card: int, device: int) -> Answer:
    """Return the board id; ``None`` when the driver marks it as invalid."""
    info, address = output(abi.BoardInfo)
    answer = library.call("dcmi_get_device_board_info", card, device, address)
    return answer, None if info.board_id == _INVALID else info.board_id


def die_words(library: Library, card: int, device: int) -> Answer:
    """Return the five words that identify the chip's V-die permanently."""
    die, address = output(abi.DieId)
    return library.call("dcmi_get_device_die_v2", card, device, _VDIE, address), list(die.soc_die)


def serial_number(library: Library, card: int) -> Answer:
    """Return the serial number on the electronic label of ``card``; empty where it has none."""
    label, address = output(abi.ElabelInfo)
    answer = library.call("dcmi_get_card_elabel_v2", card, address)
    return answer, label.serial_number.decode(errors="replace").strip()


def pcie_address(library: Library, card: int, device: int) -> Answer:
    """Return domain, bus, device and function on the PCIe bus."""
    info, address = output(abi.PcieInfoAll)
    answer = library.call("dcmi_get_device_pcie_info_v2", card, device, address)
    return answer, [info.domain, info.bdf_busid, info.bdf_deviceid, info.bdf_funcid]


def device_info(library: Library, card: int, device: int, main: int, sub: int) -> Answer:
    """Return the answer of ``dcmi_get_device_info`` to one of the commands above."""
    return _DEVICE_INFO[main, sub](library, card, device)


def _super_pod(library: Library, card: int, device: int) -> Answer:
    """Return sdid, size, super-pod id, server index, chassis id and type.

    Invalid ones are ``None``.
    """
    info, info_at = output(abi.SuperPodInfo)
    size, size_at = output(c_uint)
    # The room before the call, and after it how much the driver has written.
    size.value = sizeof(abi.SuperPodInfo)
    answer = library.call("dcmi_get_device_info", card, device, *SUPER_POD, info_at, size_at)
    if answer:
        return answer, None
    within("the super-pod data's size", size.value, _MIN_SUPER_POD, sizeof(abi.SuperPodInfo))
    members = (
        info.sdid,
        info.super_pod_size,
        info.super_pod_id,
        info.server_index,
        info.chassis_id,
        info.super_pod_type,
    )
    # The driver writes 0xFFFFFFFF for what is not valid (device-plugin#1.6).
    return answer, [None if member == _INVALID else member for member in members]


def _total_resource(library: Library, card: int, device: int) -> Answer:
    """Return into how many virtual devices the chip is divided, and how many AI cores it has."""
    words, words_at = output(c_uint * _TOTAL_RESOURCE_WORDS)
    size, size_at = output(c_uint)
    size.value = sizeof(words)
    name = "dcmi_get_device_info"
    answer = library.call(name, card, device, *VIRTUAL_DEVICES, words_at, size_at)
    if answer:
        return answer, None
    devices = within("the number of virtual devices", words[0], 0, _MAX_VIRTUAL_DEVICES)
    # JSON has no number for "not a number", which would end this process as one that is damaged.
    cores = c_float.from_buffer(words, _AICORES_AT).value
    return answer, [devices, within("the number of AI cores", cores, 0, _MAX_AICORES)]


_DEVICE_INFO = {SUPER_POD: _super_pod, VIRTUAL_DEVICES: _total_resource}


def product_type(library: Library, card: int, device: int) -> Answer:
    """Return the product name of the card, e.g. ``Atlas 300I Duo``."""
    memory = (c_char * (_PRODUCT_SIZE + SLACK))()
    answer = library.call("dcmi_get_product_type", card, device, memory, _PRODUCT_SIZE)
    return answer, text(memory.raw) or None


def hbm_mb(library: Library, card: int, device: int) -> Answer:
    """Return the size of the chip's memory in MB."""
    info, address = output(abi.HbmInfo)
    answer = library.call("dcmi_get_device_hbm_info", card, device, address)
    return answer, None if answer else within("the HBM's size", info.memory_size, 0, _HBM_MB_MAX)


def address(library: Library, card: int, device: int) -> Answer:
    """Return the four or sixteen bytes of the address of the chip's RoCE port.

    IPv4 is tried first.
    """
    answer, result = _address(library, card, device, 0)
    if answer:
        answer, result = _address(library, card, device, _IPV6)
    return answer, result


def _address(library: Library, card: int, device: int, kind: int) -> tuple[int, list[int]]:
    ip, ip_at = output(abi.IpAddress)
    _, mask_at = output(abi.IpAddress)
    ip.ip_type = kind
    name = "dcmi_get_device_ip"
    answer = library.call(name, card, device, _ROCE, _PORT, ip_at, mask_at)
    return answer, list(ip.u_addr[: 16 if ip.ip_type == _IPV6 else 4])


def processes(library: Library, card: int, device: int) -> Answer:
    """Return the ids of the processes that use the chip, as the host counts them."""
    result, found_at = output(abi.ProcessMemory * _PROCESSES)
    count, count_at = output(c_int)
    answer = library.call("dcmi_get_device_resource_info", card, device, found_at, count_at)
    if answer:
        return answer, None
    listed = within("the number of processes", count.value, 0, _PROCESSES)
    return answer, [process.proc_id for process in result[:listed]]


def error_codes(library: Library, card: int, device: int) -> Answer:
    """Return the active fault codes in the driver's order."""
    count, count_at = output(c_int)
    codes, codes_at = output(c_uint * _CODES)
    name = "dcmi_get_device_errorcode_v2"
    answer = library.call(name, card, device, count_at, codes_at, _CODES)
    if answer:
        return answer, None
    listed = within("the number of error codes", count.value, 0, _CODES)
    # A zero is not a code, as in events (dcmi#5.6).
    return answer, [code for code in codes[:listed] if code]


CALLS: dict[str, Callable[..., Answer]] = {
    **{function: _number(function) for function in _NUMBERS},
    "dcmi_init": init,
    "dcmi_get_dcmi_version": version,
    "dcmi_get_card_list": card_list,
    "dcmi_get_device_logic_id": logic_id,
    "dcmi_get_device_chip_info_v2": chip_name_v2,
    "dcmi_get_device_chip_info": chip_name,
    "dcmi_get_device_board_info": board_id,
    "dcmi_get_product_type": product_type,
    "dcmi_get_device_hbm_info": hbm_mb,
    "dcmi_get_device_ip": address,
    "dcmi_get_device_die_v2": die_words,
    "dcmi_get_card_elabel_v2": serial_number,
    "dcmi_get_device_pcie_info_v2": pcie_address,
    "dcmi_get_device_info": device_info,
    "dcmi_get_device_resource_info": processes,
    "dcmi_get_device_errorcode_v2": error_codes,
}
